from __future__ import annotations

import json
import pickle
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Handle, InvalidJob, Job, NewJob, OrderKey, Unique
from holdfast._model.new_job import Envelope

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)

job: NewJob[str] = NewJob(Envelope("mail.send", queue="mail"), '{"to":"a@b.c"}')


def members(new: NewJob[Any]) -> dict[str, object]:
    found = json.loads(new.as_json())
    assert isinstance(found, dict)
    return found


def test_what_is_default_is_not_sent() -> None:
    assert NewJob(Envelope("mail"), '{ "a": 1 }').as_json() == '{"kind":"mail","payload":{ "a": 1 }}'


def test_every_option_is_sent_as_the_database_reads_it() -> None:
    new = job.options(
        delay=timedelta(seconds=1.5),
        priority=0,
        queue="fast",
        order_key=OrderKey("k", on_failure="block"),
        unique=Unique("u", window=HOUR, on_conflict="debounce"),
        expires=timedelta(days=1),
        headers={"b": "ü", "a": '"'},
        max_attempts=7,
    )
    assert members(new) == {
        "kind": "mail.send",
        "queue": "fast",
        "priority": 0,
        "max_attempts": 7,
        "delay_ms": 1500,
        "order_key": "k",
        "order_block": True,
        "unique_key": "u",
        "unique_window_ms": 3_600_000,
        "on_conflict": "debounce",
        "expires_ms": 86_400_000,
        "headers": {"a": '"', "b": "ü"},
        "payload": {"to": "a@b.c"},
    }


def test_chains_are_named_by_handle_or_id() -> None:
    handle: Handle[Any] = Handle(9, 7, created=True)
    waiting = job.options(after=[handle, 3], if_blocker_fails="run")
    assert members(waiting) == members(job) | {"blockers": [7, 3], "run_anyway": True}
    assert not waiting.envelope.plain
    assert members(job.options(after=(3,))) == members(job) | {"blockers": [3]}
    assert waiting.options(after=()) == job.options(if_blocker_fails="run")
    assert waiting.options(after=()).envelope.plain


def test_jobs_and_handles_can_travel_between_processes() -> None:
    """Without what decodes their results: a handler of another process has its own."""
    made = NewJob[str](job.envelope, job.payload, lambda _: "result")
    handle: Handle[str] = Handle(1, 1, created=True, decode=made.decode)
    again: list[Any] = pickle.loads(pickle.dumps([made, handle]))  # noqa: S301 - our own bytes
    assert again == [made, handle]
    assert [one.decode for one in again] == [None, None]


def test_times_are_sent_in_utc() -> None:
    santiago = datetime(2030, 1, 1, 9, tzinfo=timezone(-timedelta(hours=3)))
    new = job.options(at=santiago, expires=NOON + HOUR)
    assert members(new)["at"] == "2030-01-01T12:00:00+00:00"
    assert members(new)["expires_at"] == "2030-01-01T13:00:00+00:00"


def test_a_plain_order_key_lets_the_next_one_on() -> None:
    assert job.options(order_key="k") == job.options(order_key=OrderKey("k"))
    assert "order_block" not in members(job.options(order_key="k"))


def test_options_return_another_job_and_keep_what_they_do_not_name() -> None:
    new = job.options(priority=1, unique=Unique("u")).options(priority=2)
    assert (new.envelope.priority, new.envelope.unique, new.envelope.queue) == (2, Unique("u"), "mail")
    assert job.envelope.unique is None
    assert new.options(unique=None).envelope.unique is None
    assert new.options() == new


def test_delay_and_at_replace_each_other() -> None:
    assert "delay_ms" not in members(job.options(delay=HOUR).options(at=NOON))
    assert "at" not in members(job.options(at=NOON).options(delay=HOUR))
    with pytest.raises(InvalidJob, match="delay, at"):
        job.options(at=NOON, delay=HOUR)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("delay", -HOUR),
        ("delay", timedelta(days=3_661)),
        ("delay", "5"),
        ("at", datetime(2030, 1, 1)),  # noqa: DTZ001 - that is the mistake
        ("at", datetime.max.replace(tzinfo=timezone(-HOUR))),
        ("at", "2030-01-01"),
        ("priority", -1),
        ("priority", 10),
        ("priority", True),
        ("priority", 5.0),
        ("queue", ""),
        ("queue", "a\0"),
        ("queue", "é" * 51),
        ("queue", "\ud800"),
        ("queue", None),
        ("order_key", ""),
        ("order_key", "é" * 251),
        ("order_key", 7),
        ("unique", 7),
        ("unique", ""),
        ("expires", timedelta(0)),
        ("expires", timedelta(microseconds=999)),
        ("expires", datetime(2030, 1, 1)),  # noqa: DTZ001 - that is the mistake
        ("expires", "5"),
        ("headers", {"a": 1}),
        ("headers", {"a": "\0"}),
        ("headers", {"a": "\ud800"}),
        ("headers", {"": "a"}),
        ("headers", {"a": "x" * 8_192}),
        ("headers", [("a", "b")]),
        ("max_attempts", 0),
        ("max_attempts", 1001),
        ("max_attempts", -1),
        ("after", [0]),
        ("after", ["7"]),
        ("after", range(1, 10_002)),
        ("if_blocker_fails", "wait"),
    ],
)
def test_a_wrong_option_is_refused_by_name(option: str, value: object) -> None:
    wrong: dict[str, Any] = {option: value}
    with pytest.raises(InvalidJob, match=rf"^{option}: "):
        job.options(**wrong)


@pytest.mark.parametrize(
    ("option", "make"),
    [
        ("unique", lambda: Unique("")),
        ("window", lambda: Unique("k", window=timedelta(0))),
        ("window", lambda: Unique("k", window=timedelta(days=31, milliseconds=1))),
        ("window", lambda: Unique("k", window=timedelta(milliseconds=1.5))),
        ("on_conflict", lambda: Unique("k", on_conflict="ignore")),  # type: ignore[arg-type]
        ("on_failure", lambda: OrderKey("k", on_failure="stop")),  # type: ignore[arg-type]
        ("kind", lambda: Envelope("")),
        ("kind", lambda: Envelope("a b\n")),
        ("version", lambda: Envelope("a", 0)),
        ("expires", lambda: job.options(delay=HOUR, expires=HOUR)),
        ("expires", lambda: job.options(at=NOON, expires=NOON)),
    ],
)
def test_wrong_values_are_refused_by_name(option: str, make: Any) -> None:
    with pytest.raises(InvalidJob, match=rf"^{option}: "):
        make()


keys = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=20)
sendable = st.text(st.characters(codec="utf-8", exclude_characters="\0"))


@given(keys, keys, st.dictionaries(keys, sendable))
def test_any_text_is_escaped(order_key: str, unique_key: str, headers: dict[str, str]) -> None:
    sent = members(job.options(order_key=order_key, unique=Unique(unique_key), headers=headers))
    assert (sent["order_key"], sent["unique_key"], sent.get("headers", {})) == (order_key, unique_key, headers)


def test_new_jobs_are_values() -> None:
    with pytest.raises(FrozenInstanceError):
        job.payload = "{}"  # type: ignore[misc]
    new = job.options(headers={"a": "b"}, unique=Unique("u"), delay=HOUR)
    assert pickle.loads(pickle.dumps(new)) == new  # noqa: S301 - our own bytes
    assert len({job, job.options(), new}) == 2


def test_a_job_for_a_handler_needs_little() -> None:
    received = Job(id=7, kind="mail.send", state="state")
    assert (received.attempt, received.chain_id, received.headers) == (1, 7, {})
    assert received.idempotency_key == "holdfast:7"
    assert Job(id=7, kind="mail.send", state="state", attempt=2, token=9).idempotency_key == received.idempotency_key
    assert Job(id=8, kind="mail.send", state="state").idempotency_key != received.idempotency_key
