"""The writer of steps: if something ends it, no step waits for it any longer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg

from holdfast._engine.jobs.recorder import Recorder
from holdfast._engine.link import Link
from holdfast._engine.own_row import OwnRow
from holdfast._model.errors import AbortSignal
from holdfast._store.lease import Held
from holdfast._store.step import NewStep, Saved
from tests.kit.workers import Worker, enqueue, job, number

if TYPE_CHECKING:
    from holdfast._store.statement import Statement


async def test_no_step_waits_for_a_writer_that_was_cancelled() -> None:
    writes, silent = asyncio.Queue[asyncio.Task[Any] | None](), asyncio.Event()

    async def run(_: Statement[Any], /) -> Any:
        writes.put_nowait(asyncio.current_task())
        if not silent.is_set():
            silent.set()
            await asyncio.Event().wait()
        return [Saved()]

    recorder, signal = Recorder(run, OwnRow()), AbortSignal()
    first = asyncio.create_task(recorder.save(NewStep(Held(1, 1), ("first", None)), signal))
    writer = await writes.get()
    assert writer is not None
    second = asyncio.create_task(recorder.save(NewStep(Held(2, 2), ("second", None)), signal))
    await asyncio.sleep(0)  # it waits behind the first
    writer.cancel()
    assert [*await asyncio.wait_for(asyncio.gather(first, second), 30)] == [Saved(), Saved()]


async def test_a_step_whose_answer_was_lost_is_recorded_once(database: str) -> None:
    lost = 0
    with psycopg.connect(database, autocommit=True) as conn:
        worker, row = Worker(conn), OwnRow()
        row.id = worker.id
        enqueue(conn, job())
        (claimed,) = worker.claim()
        async with Link(database, timeout=30) as link:

            async def run(statement: Statement[Any], /) -> Any:
                nonlocal lost
                answer = await link.run(statement)
                if not lost:
                    lost += 1
                    raise ConnectionError("the line was cut")
                return answer

            step = NewStep(Held(claimed.id, claimed.token), ("charge", None), "1")
            assert await Recorder(run, row).save(step, AbortSignal()) == Saved()
        assert lost == number(conn, "SELECT count(*) FROM holdfast.step") == 1
