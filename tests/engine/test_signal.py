"""The signal by which a handler learns that it should stop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast import AbortReason
from holdfast._model.errors import Aborted, AbortSignal


async def test_it_fires_once_and_keeps_its_reason() -> None:
    signal = AbortSignal()
    signal.raise_if_aborted()
    assert (signal.aborted, signal.reason, repr(signal)) == (False, None, "<AbortSignal quiet>")
    assert signal.abort(AbortReason.timeout)
    assert not signal.abort(AbortReason.shutdown)
    assert (signal.aborted, signal.reason) == (True, AbortReason.timeout)
    assert await signal.wait() is AbortReason.timeout
    assert signal.wait_in_thread(0)
    with pytest.raises(Aborted) as caught:
        signal.raise_if_aborted()
    assert caught.value.reason is AbortReason.timeout


async def test_waiters_are_woken_from_any_thread() -> None:
    signal = AbortSignal()
    waiters = [asyncio.create_task(signal.wait()) for _ in range(3)]
    threads = [asyncio.create_task(asyncio.to_thread(signal.wait_in_thread, 10)) for _ in range(3)]
    await asyncio.sleep(0)
    threading.Thread(target=signal.abort, args=[AbortReason.cancelled]).start()
    async with asyncio.timeout(10):
        assert await asyncio.gather(*waiters) == [AbortReason.cancelled] * 3
        assert await asyncio.gather(*threads) == [True] * 3


async def test_waiting_in_a_thread_is_bounded() -> None:
    assert not AbortSignal().wait_in_thread(0.01)


async def test_of_many_threads_one_fires_it() -> None:
    for _ in range(200):
        signal = AbortSignal()
        barrier = threading.Barrier(4)
        won: list[AbortReason] = []

        def fire(reason: AbortReason) -> None:
            barrier.wait()  # noqa: B023 - joined in the same turn
            if signal.abort(reason):  # noqa: B023 - joined in the same turn
                won.append(reason)  # noqa: B023 - joined in the same turn

        threads = [threading.Thread(target=fire, args=[reason]) for reason in list(AbortReason)[:4]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert won == [signal.reason]


async def test_a_closed_event_loop_is_ignored() -> None:
    signal = AbortSignal()

    def elsewhere() -> None:
        async def wait_briefly() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await signal.wait()

        asyncio.run(wait_briefly())

    await asyncio.to_thread(elsewhere)
    assert signal.abort(AbortReason.shutdown)
