"""Workers of the same kinds take turns in reaping: a fleet sends no more passes than one worker, and misses none."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from holdfast._engine.jobs import reap
from holdfast._engine.jobs.reap import ReapSchedule
from tests.kit.pace import PATIENT, ms
from tests.kit.waiting import serving, until

if TYPE_CHECKING:
    from holdfast import Holdfast, Job
    from tests.kit.ledger import Ledger

INTERVAL = 10.0


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(reap, "time", clock)
    return clock


def turns_of(peers: int, *, at: float, longest: float = 60.0) -> list[ReapSchedule]:
    fleet = [ReapSchedule(INTERVAL, longest) for _ in range(peers)]
    for place, turns in enumerate(fleet):
        turns.learn(place, peers, at)
    return fleet


def test_a_worker_alone_reaps_every_interval(clock: Clock) -> None:
    (turns,) = turns_of(1, at=77.0)
    assert turns.rest() == INTERVAL
    assert turns.others == 0


@pytest.mark.parametrize("peers", [2, 3, 6])
def test_one_of_the_fleet_reaps_in_each_interval(clock: Clock, peers: int) -> None:
    fleet = turns_of(peers, at=77.0)
    passes = sorted(turns.rest() for turns in fleet)
    gaps = [later - earlier for earlier, later in zip(passes, [*passes[1:], passes[0] + peers * INTERVAL], strict=True)]
    assert gaps == pytest.approx([INTERVAL] * peers)


def test_however_many_they_are_each_reaps_within_the_lease(clock: Clock) -> None:
    fleet = turns_of(200, at=77.0)
    passes = [turns.rest() for turns in fleet]
    assert max(passes) <= 60
    in_turn = [sum(start <= rest < start + INTERVAL for rest in passes) for start in range(0, 60, 10)]
    assert min(in_turn) >= 33, "as many in each interval"


def test_after_a_pass_its_next_turn_is_a_round_later(clock: Clock) -> None:
    turns = turns_of(3, at=0.0)[1]
    assert turns.rest() == pytest.approx(10.0)
    clock.now += 10.001
    assert turns.rest() == pytest.approx(29.999)


def test_who_remains_alone_has_every_turn(clock: Clock) -> None:
    turns = turns_of(3, at=0.0)[2]
    turns.changed.clear()
    turns.learn(2, 3, at=5.0)
    assert not turns.changed.is_set(), "a beat that brings nothing new"
    turns.learn(0, 1, at=5.0)
    assert turns.changed.is_set()
    assert turns.rest() == INTERVAL


async def test_a_fleet_makes_the_passes_of_one_worker(app: Holdfast, ledger: Ledger) -> None:
    """Four workers that would each reap ten times a second reap ten times a second together, and a lost job at once."""

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    pace = PATIENT | {"heartbeat": ms(200), "reap_interval": ms(100), "lease": ms(2_000)}
    async with AsyncExitStack() as stack:
        fleet = [await stack.enter_async_context(app.worker(id=f"w{n}", **pace)) for n in range(4)]
        reapers = [serving(worker)._reaper for worker in fleet]
        await until(lambda: all(reaper.schedule.others == pytest.approx(0.3) for reaper in reapers))
        before = sum(reaper.runs for reaper in reapers)
        begun = asyncio.get_running_loop().time()
        await until(lambda: sum(reaper.runs for reaper in reapers) >= before + 20)
        assert asyncio.get_running_loop().time() - begun > 1.5, (
            "twenty passes take two seconds, and alone half a second"
        )
        for worker in fleet[1:]:
            await worker.stop()
        await until(lambda: reapers[0].schedule.others == 0)
