"""The writer of steps: if something ends it, no step waits for it any longer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from holdfast._engine.jobs.recorder import Recorder
from holdfast._engine.own_row import OwnRow
from holdfast._model.errors import AbortSignal
from holdfast._store.lease import Held
from holdfast._store.step import NewStep, Saved

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
