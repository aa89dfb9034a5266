"""Every argument that is a duration takes seconds or a timedelta, and refuses other values with the same text."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import (
    Busy,
    Every,
    Holdfast,
    InvalidJob,
    Job,
    Lease,
    NewJob,
    Reschedule,
    Retry,
    Settings,
    SettingsError,
    Tick,
    Unique,
)
from holdfast._model.duration import as_timedelta
from holdfast._model.errors import AbortReason, AbortSignal
from holdfast._model.new_job import Envelope
from holdfast._model.schedule import InvalidSchedule
from holdfast._relay.sinks.session import timeout_seconds
from holdfast.sinks import Breaker, NatsSink, verify

if TYPE_CHECKING:
    from collections.abc import Callable

JOB: NewJob[Any] = NewJob(Envelope("mail"), "{}")


def registered(**options: Any) -> Any:
    app = Holdfast()

    @app.job("mail", **options)
    async def mail(job: Job[None]) -> None: ...

    return mail.work


def reported(value: Any) -> Any:
    tick = Tick(name="carts")
    tick.look_again(value)
    return tick.next_look


TAKEN: dict[str, Callable[[Any], Any]] = {
    "Retry.base": lambda value: Retry(base=value),
    "Retry.maximum": lambda value: Retry(maximum=value),
    "Retry.jitter": lambda value: Retry(jitter=value),
    "Retry.steps": lambda value: Retry(steps=[value]),
    "Retry.table": lambda value: Retry.table([value], jitter=value),
    "Every": Every,
    "Lease": Lease,
    "Unique.window": lambda value: Unique("7", window=value),
    "delay": lambda value: JOB.options(delay=value).envelope,
    "expires": lambda value: JOB.options(expires=value).envelope,
    "Reschedule": lambda value: Reschedule(value).after,
    "Retry.again": lambda value: Retry.again(value).delay,
    "Busy": lambda value: Busy(value).retry_after,
    "lease": lambda value: registered(lease=value),
    "max_runtime": lambda value: registered(max_runtime=value),
    "look_again": reported,
    "sink": lambda value: timeout_seconds(NatsSink("nats://127.0.0.1", timeout=value).timeout),
    "breaker": lambda value: Breaker(rest=value).seconds,
    "setting": lambda value: Settings.load({}, reap_interval=value).reap_interval,
}
EXAMPLE = r"expected seconds or a timedelta.*, from .* to .*, like 30 or timedelta\(minutes=5\), got "


@pytest.mark.parametrize("take", TAKEN.values(), ids=TAKEN)
@pytest.mark.parametrize(("seconds", "span"), [(5, timedelta(seconds=5)), (0.25, timedelta(milliseconds=250))])
def test_seconds_mean_the_same_as_a_timedelta(take: Callable[[Any], Any], seconds: float, span: timedelta) -> None:
    assert take(seconds) == take(span)


@pytest.mark.parametrize("take", [take for name, take in TAKEN.items() if name != "setting"])
@pytest.mark.parametrize(
    ("value", "got"),
    [
        (-1, "-1 s"),
        (timedelta(seconds=-1), "-1 s"),
        (float("nan"), "nan s"),
        (float("inf"), r"a number above 10\^15"),
        (10**5000, r"a number above 10\^15"),
        (-(10**5000), r"a number below -10\^15"),
        (1e12, "1000000000000 s"),
        (True, "bool"),
        ("5", "str"),
        (Decimal(5), "Decimal"),
    ],
    ids=[
        "negative",
        "negative timedelta",
        "nan",
        "infinite",
        "huge",
        "hugely negative",
        "long",
        "bool",
        "text",
        "Decimal",
    ],
)
def test_another_value_is_refused_with_what_may_be_given(take: Callable[[Any], Any], value: object, got: str) -> None:
    with pytest.raises((TypeError, ValueError, InvalidJob), match=f"{EXAMPLE}{got}$"):
        take(value)


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({}, "from 0 to 366 days"),
        ({"least": timedelta.resolution, "limit": timedelta(days=1)}, "from more than 0 to 1 day"),
        ({"least": timedelta(milliseconds=1), "limit": timedelta(seconds=90)}, "from 1 ms to 90 s"),
        ({"others": " or a datetime"}, "a timedelta or a datetime, from 0"),
    ],
)
def test_the_error_shows_the_range(limits: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        as_timedelta("delay", -5, **limits)


def test_errors_keep_the_class_of_their_place() -> None:
    with pytest.raises(InvalidJob, match=r"^delay: "):
        JOB.options(delay=-1)
    with pytest.raises(InvalidSchedule, match=r"^every: "):
        Every(0)
    with pytest.raises(InvalidSchedule, match=r"whole milliseconds, got 0\.333333 s"):
        Every(1 / 3)


async def test_waits_and_workers_take_seconds() -> None:
    app = Holdfast("postgresql://127.0.0.1:1/nowhere")
    app.worker(poll_interval=0.5, next_job_delay={"default": 1}, lease=30)
    with pytest.raises(ValueError, match=f"^timeout: {EXAMPLE}0 s$"):
        await app.wait(1, timeout=0)
    with pytest.raises(ValueError, match=f"^poll_interval: {EXAMPLE}172800 s$"):
        app.worker(poll_interval=172_800)
    with pytest.raises(TypeError, match=f"^next_job_delay of default: {EXAMPLE}str$"):
        app.worker(next_job_delay={"default": "1"})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match=f"^timeout: {EXAMPLE}-1 s$"):
        app.http_runner("calls", "/x", timeout=-1)
    with pytest.raises(ValueError, match=f"^tolerance: {EXAMPLE}-1 s$"):
        verify(b"", {"webhook-id": "1", "webhook-signature": "x", "webhook-timestamp": "1"}, "whsec_eA==", tolerance=-1)


def test_a_setting_that_is_no_duration_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"lease \(argument\) must be seconds or a timedelta"):
        Settings.load({}, lease="30")


def test_a_thread_waits_for_a_signal_in_seconds_or_a_timedelta() -> None:
    signal = AbortSignal()
    assert not signal.wait_in_thread(0.001)
    assert not signal.wait_in_thread(timedelta(milliseconds=1))
    signal.abort(AbortReason.shutdown)
    assert signal.wait_in_thread()
