"""The traceback of a failed attempt, and how long it ran, are kept."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from holdfast import Fail, Holdfast, Job
from holdfast._drivers import run_sync
from holdfast._logs.failure import TRACEBACK_LIMIT, traceback_of
from holdfast._store.inspect import AttemptLine, list_attempts
from tests.kit.pace import AT_ONCE, QUICK
from tests.kit.waiting import until

if TYPE_CHECKING:
    from tests.kit.ledger import Ledger


class Card(BaseModel):
    pin: int


def attempts(ledger: Ledger, job: int) -> list[AttemptLine]:
    return run_sync(ledger.conn, list_attempts(job))


async def run_until_failed(app: Holdfast, ledger: Ledger, job: int, **options: Any) -> list[AttemptLine]:
    async with app.worker(**QUICK, **options):
        await until(lambda: ledger.status(job) == "failed")
    return attempts(ledger, job)


async def test_it_is_kept_with_its_cause_masked_and_without_payloads(app: Holdfast, ledger: Ledger) -> None:
    @app.job("act", retry=AT_ONCE)
    async def act(job: Job[None], pin: str) -> None:
        try:
            Card.model_validate({"pin": pin})
        except ValueError as exc:
            await asyncio.sleep(0.05)
            raise ConnectionError("no answer from postgres://app:hunter2@db/app") from exc

    job = ledger.enqueue_one(act.new("s3cret").options(max_attempts=2))
    first, last = await run_until_failed(app, ledger, job)
    for line in (first, last):
        assert line.traceback is not None
        cause, error = line.traceback.split("\n\nThen:\n\n")
        assert 'Card.model_validate({"pin": pin})' in cause
        assert "ValidationError: Card: pin: " in cause
        assert "in act" in error
        assert error.endswith("ConnectionError: no answer from postgres://app:***@db/app")
        assert "s3cret" not in line.traceback
        assert line.seconds is not None
        assert 0.04 < line.seconds < 30
        assert line.started_at is not None
        assert abs((line.ended_at - line.started_at).total_seconds() - line.seconds) < 0.001


async def test_one_that_never_waits_has_them_too_and_fail_has_no_traceback(app: Holdfast, ledger: Ledger) -> None:
    @app.job("act", retry=AT_ONCE)
    async def act(job: Job[None], how: str) -> None:
        raise Fail("no") if how == "chosen" else KeyError(how)

    chosen, raised = ledger.enqueue(act.new("chosen"), act.new("raised").options(max_attempts=1))
    async with app.worker(**QUICK):
        await until(lambda: ledger.statuses() == {"failed": 2})
    [one], [other] = attempts(ledger, chosen), attempts(ledger, raised)
    assert (one.traceback, one.seconds is not None) == (None, True)
    assert other.traceback is not None
    assert other.traceback.endswith("KeyError: 'raised'")
    assert other.seconds is not None


async def test_it_can_be_turned_off(app: Holdfast, ledger: Ledger) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None:
        raise RuntimeError("no")

    job = ledger.enqueue_one(act.new().options(max_attempts=1))
    [line] = await run_until_failed(app, ledger, job, tracebacks=False)
    assert (line.error_code, line.traceback) == ("RuntimeError", None)


def test_it_is_bounded() -> None:
    def deep(n: int) -> None:
        if n:
            deep(n - 1)
        raise RuntimeError("x" * 100_000)

    def wrapped(n: int) -> None:
        try:
            wrapped(n - 1) if n else deep(500)
        except Exception as exc:
            raise ValueError("y" * 5_000) from exc

    with pytest.raises(ValueError, match="yyy") as caught:
        wrapped(20)
    text = traceback_of(caught.value)
    assert text is not None
    assert len(text) <= TRACEBACK_LIMIT
    assert "ValueError: yyy" in text
    assert traceback_of(ValueError("made, not raised")) is None
