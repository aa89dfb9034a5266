"""A sleeping claimer is woken when a queue wants jobs that wanted none before, and by no other free slot."""

from __future__ import annotations

import pytest

from holdfast._engine.jobs.demand import Demand
from holdfast._engine.jobs.slots import Slots
from holdfast._engine.session import Control


@pytest.fixture
def slots() -> Slots:
    return Slots(10, {"default": 5, "pdf": 1}, batch=50)


@pytest.fixture
def control() -> Control:
    return Control()


@pytest.fixture
def demand(slots: Slots, control: Control) -> Demand:
    return Demand(slots, control)


def start(demand: Demand, queue: str) -> None:
    demand.slots.holds(queue, 1, of=demand)
    demand.slots.starts(queue, of=demand)


def test_paused_queues_want_nothing(demand: Demand, control: Control) -> None:
    assert demand.wanted() == {"default": 5, "pdf": 1}
    control.paused = frozenset({"pdf"})
    assert demand.wanted() == {"default": 5}
    assert demand.openings() == ["default"]


def test_nothing_is_wanted_while_too_many_outcomes_wait(demand: Demand) -> None:
    demand.full = True
    assert demand.wanted() == {}


def test_a_queue_that_was_full_wakes_the_claimer(demand: Demand) -> None:
    start(demand, "pdf")
    demand.asleep_for = demand.wanted().keys()
    assert list(demand.asleep_for) == ["default"]
    demand.grew()
    assert not demand.woken.is_set()
    demand.slots.ends("pdf", of=demand)
    demand.grew()
    assert demand.woken.is_set()


def test_a_queue_that_was_not_full_does_not(demand: Demand) -> None:
    start(demand, "default")
    demand.asleep_for = demand.wanted().keys()
    demand.slots.ends("default", of=demand)
    demand.grew()
    assert demand.room.is_set()
    assert not demand.woken.is_set()


def test_a_claimer_that_is_awake_only_learns_of_the_room(demand: Demand) -> None:
    demand.grew()
    assert demand.room.is_set()
    assert not demand.woken.is_set()
