from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Retry
from holdfast._model.retry import tries

MINUTES = [timedelta(minutes=m) for m in (1, 2, 4, 8, 16, 60)]


def seconds(retry: Retry) -> list[float]:
    return [ms / 1000 for ms in retry.delays()]


def test_the_default_doubles_from_five_seconds_to_two_minutes_with_half_a_second_of_jitter() -> None:
    assert seconds(Retry()) == [5, 10, 20]
    assert seconds(Retry(max_attempts=7)) == [5, 10, 20, 40, 80, 120, 120]
    assert Retry().jitter == timedelta(milliseconds=500)


def test_ten_seconds_doubling_to_five_minutes() -> None:
    retry = Retry(
        max_attempts=7, base=timedelta(seconds=10), factor=2, maximum=timedelta(seconds=300), jitter=timedelta(0)
    )
    assert seconds(retry) == [10, 20, 40, 80, 160, 300, 300]


def test_half_a_minute_doubling_to_ten_minutes() -> None:
    retry = Retry(max_attempts=6, base=timedelta(seconds=30), maximum=timedelta(seconds=600))
    assert seconds(retry) == [30, 60, 120, 240, 480, 600]


def test_a_table_of_minutes_repeats_its_last_line() -> None:
    retry = Retry.table(MINUTES, max_attempts=8, jitter=timedelta(0))
    assert seconds(retry) == [60, 120, 240, 480, 960, 3600, 3600, 3600]
    assert retry.delay(10**9) == timedelta(minutes=60)


@pytest.mark.parametrize("attempt", [1_000, 10**6, 10**18, 10**400])
@pytest.mark.parametrize("factor", [1.0, 1.5, 2.0, 1e300])
def test_huge_attempts_never_overflow(attempt: int, factor: float) -> None:
    retry = Retry(factor=factor)
    assert retry.delay(attempt) == (timedelta(seconds=5) if factor == 1 else retry.maximum)


def test_no_base_is_no_wait_however_often() -> None:
    assert Retry(base=timedelta(0)).delay(10**6) == timedelta(0)


def test_without_a_limit_no_attempt_is_the_last() -> None:
    endless = Retry(max_attempts=None)
    assert [Retry(3).is_last(attempt) for attempt in (1, 2, 3, 4)] == [False, False, True, True]
    assert not any(endless.is_last(attempt) for attempt in (1, 5_000, 10**9))
    assert endless.delay(5_000) == endless.maximum
    assert endless.maximum <= endless.jittered(5_000) <= endless.maximum + endless.jitter


@pytest.mark.parametrize(
    ("retry", "waits"),
    [
        (Retry(None), [5, 10, 20, 40, 80, 120]),
        (Retry(None, factor=1), [5]),
        (Retry(None, base=timedelta(0)), [0]),
        (Retry.table([*MINUTES, *MINUTES[-1:]], max_attempts=None), [60, 120, 240, 480, 960, 3600]),
        (Retry.table(MINUTES[:1], max_attempts=None), [60]),
    ],
)
def test_without_a_limit_the_waits_are_listed_until_they_repeat(retry: Retry, waits: list[float]) -> None:
    assert seconds(retry) == waits
    assert len(Retry(None, factor=1.000001).delays()) <= 1_000


def test_attempts_in_a_table() -> None:
    assert (tries(2, 3), tries(7, None)) == ("2/3", "7")


@given(st.integers(-5, 2_000), st.floats(0, 1))
def test_jitter_is_added_and_bounded(attempt: int, chance: float) -> None:
    retry = Retry()
    assert retry.delay(attempt) <= retry.jittered(attempt, random=lambda: chance) <= retry.delay(attempt) + retry.jitter


@pytest.mark.parametrize(
    ("retry", "delays"),
    [(Retry(2, base=timedelta(hours=1)), [3_600_000] * 2), (Retry(2, maximum=2), [2_000] * 2)],
)
def test_the_default_of_one_limit_follows_the_other(retry: Retry, delays: list[int]) -> None:
    assert retry.delays() == delays


def test_limits_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="the first delay, 100 s, is longer than the longest, 10 s"):
        Retry(base=100, maximum=10)


@given(
    st.integers(1, 1000),
    st.timedeltas(timedelta(0), timedelta(days=366)),
    st.floats(1, 1e6),
    st.timedeltas(timedelta(0), timedelta(days=366)),
)
def test_waits_grow_and_stay_below_the_maximum(
    attempts: int, base: timedelta, factor: float, maximum: timedelta
) -> None:
    base, maximum = sorted((base, maximum))
    retry = Retry(attempts, base=base, factor=factor, maximum=maximum)
    delays = retry.delays()
    assert len(delays) == attempts
    assert delays == sorted(delays)
    assert delays[-1] <= math.ceil(maximum / timedelta(milliseconds=1))
    assert [retry.delay(n + 1) // timedelta(milliseconds=1) for n in range(attempts)] == delays


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("max_attempts", {"max_attempts": 0}),
        ("max_attempts", {"max_attempts": 1001}),
        ("max_attempts", {"max_attempts": True}),
        ("factor", {"factor": 0.5}),
        ("factor", {"factor": math.nan}),
        ("base", {"base": timedelta(seconds=-1)}),
        ("maximum", {"maximum": timedelta(days=367)}),
        ("jitter", {"jitter": timedelta(seconds=-1)}),
        (r"steps\[1\]", {"steps": (timedelta(0), timedelta(days=-1))}),
    ],
)
def test_settings_out_of_bounds_are_refused_by_name(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=name):
        Retry(**options)


def test_errors_are_retried_by_their_class() -> None:
    retry = Retry(on=(OSError,), never=(FileNotFoundError,))
    retried = {cls: retry.retries(cls()) for cls in (OSError, ConnectionError, FileNotFoundError, ValueError)}
    assert list(retried.values()) == [True, True, False, False]
    assert Retry().retries(SystemExit())
    assert not Retry(on=()).retries(ValueError())
    assert Retry.table([1], on=[OSError], never=[TimeoutError]) == Retry(
        3, steps=[1], on=(OSError,), never=(TimeoutError,)
    )


def test_one_error_of_a_group_that_is_retried_is_enough() -> None:
    retry = Retry(on=(OSError,), never=(TimeoutError,))
    assert retry.retries(ExceptionGroup("", [ValueError(), ExceptionGroup("", [ConnectionError()])]))
    assert not retry.retries(ExceptionGroup("", [ValueError(), TimeoutError()]))


@pytest.mark.parametrize(("own", "retried"), [(True, True), (False, False), (None, False), ("yes", False)])
def test_an_error_decides_by_itself_unless_it_is_in_never(own: object, retried: bool) -> None:
    error = type("OwnError", (Exception,), {"retryable": own})
    assert Retry(on=(OSError,)).retries(error()) == retried
    assert not Retry(never=(error,)).retries(error())


@pytest.mark.parametrize("wrong", [ValueError, "ValueError", [ValueError()], [int], None, 5])
@pytest.mark.parametrize("name", ["on", "never"])
def test_what_is_no_class_of_errors_is_refused(name: str, wrong: Any) -> None:
    with pytest.raises(TypeError, match=rf"{name}: expected classes of exceptions, such as {name}=\(Conn"):
        Retry(**{name: wrong})


def test_an_empty_table_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one step"):
        Retry.table([])
