from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from holdfast._store.claim import CHEAP, MOST_LANES, REACHES, SHARE_OF_TIME, SHARED_FROM, Floors, Lane
from holdfast._store.lease import ReapFloor
from tests.kit.clock import Clock

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOTHING: list[Any] = []


class Taken(NamedTuple):
    queue: str
    priority: int
    kind: str
    available_at: datetime
    id: int = 1


def learn(floors: Floors, *taken: Taken, reach: float = REACHES[0], took: float = 0.001) -> None:
    jobs: list[Any] = list(taken)
    floors.advance(jobs, reach=reach, took=took)


def floor(floors: Floors, queue: str, kind: str, priority: int) -> tuple[datetime, int] | None:
    return dict(floors.lanes(REACHES[0], [queue], [kind])).get(Lane(queue, kind, priority))


def test_floors_stand_in_the_order_of_the_index() -> None:
    floors = Floors()
    taken = [Taken(queue, level, kind, NOON) for kind in "yx" for level in (5, 0) for queue in ("b", "ba", "a", "é")]
    learn(floors, *taken)
    found = [lane for lane, _ in floors.lanes(REACHES[0], ["a", "b", "ba", "é"], None)]
    assert len(found) == len(taken)
    assert found == sorted(found, key=lambda lane: (lane.queue.encode(), lane.kind.encode(), lane.priority))
    assert [lane for lane, _ in floors.lanes(REACHES[0], ["b"], ["x"])] == [Lane("b", "x", 0), Lane("b", "x", 5)]


def test_a_floor_never_falls() -> None:
    floors = Floors()
    for minutes, number in ((0, 9), (2, 5), (1, 6), (2, 4)):
        learn(floors, Taken("q", 0, "k", NOON + timedelta(minutes=minutes), number))
    assert floor(floors, "q", "k", 0) == (NOON + timedelta(minutes=2), 5)
    learn(floors, *(Taken("q", 0, "k", NOON + timedelta(minutes=minutes)) for minutes in (9, 7, 8)))
    assert floor(floors, "q", "k", 0) == (NOON + timedelta(minutes=9), 1)


def test_the_lanes_that_were_quiet_longest_are_forgotten() -> None:
    floors = Floors()
    for number in range(MOST_LANES + 10):
        learn(floors, Taken("q", 0, f"k{number}", NOON))
        learn(floors, Taken("q", 0, "k0", NOON))
    known = {lane.kind for lane, _ in floors.lanes(REACHES[0], ["q"], None)}
    assert known == {"k0"} | {f"k{number}" for number in range(11, MOST_LANES + 10)}


def test_a_cheap_look_at_everything_needs_no_floors() -> None:
    floors = Floors(clock=Clock(1000.0))
    learn(floors, Taken("q", 0, "k", NOON), reach=REACHES[-1], took=CHEAP)
    assert floors.reach() == REACHES[-1]
    assert floors.lanes(REACHES[-1], ["q"], None) == []
    learn(floors, reach=REACHES[-1], took=SHARED_FROM)
    assert floors.reach() != REACHES[-1]
    assert floors.lanes(REACHES[-1], ["q"], None) != []


def test_a_look_at_everything_that_is_cheaper_than_all_the_floors_needs_none() -> None:
    floors = Floors(clock=Clock(1000.0))
    learn(floors, *(Taken("q", 0, f"k{number}", NOON) for number in range(100)), reach=REACHES[-1], took=0.003)
    assert floors.reach() == REACHES[-1]
    assert floors.lanes(REACHES[-1], ["q"], None) == []
    learn(floors, reach=REACHES[-1], took=0.006)
    assert floors.reach() != REACHES[-1]
    # A narrow look tells what the floors cost here; a standstill tells nothing.
    learn(floors, reach=REACHES[0], took=0.008)
    learn(floors, reach=REACHES[-1], took=0.006)
    assert floors.reach() == REACHES[-1]
    learn(floors, reach=REACHES[0], took=1.0)
    learn(floors, reach=REACHES[-1], took=0.5)
    assert floors.reach() != REACHES[-1]


def test_the_first_look_reaches_everything_and_so_does_the_first_after_a_drop() -> None:
    clock = Clock(1000.0)
    floors = Floors(clock=clock)
    assert floors.reach() == REACHES[-1]
    learn(floors, Taken("q", 0, "k", NOON), reach=REACHES[-1], took=60)
    assert floors.reach() != REACHES[-1]
    floors.drop()
    assert floors.reach() == REACHES[-1]
    assert floor(floors, "q", "k", 0) is None


def test_a_costly_full_look_does_not_put_off_the_narrow_ones() -> None:
    """A job that commits a second late must not wait until ten seconds of sweeping have been made up for."""
    clock = Clock(1000.0)
    floors = Floors(clock=clock)
    learn(floors, reach=REACHES[-1], took=10)
    clock.now += 1
    assert floors.reach() in REACHES[1:-1]
    clock.now += 10 / SHARE_OF_TIME - 2
    assert floors.reach() != REACHES[-1]
    clock.now += 2
    assert floors.reach() == REACHES[-1]


@given(st.lists(st.sampled_from([0.0005, 0.004, 0.05]), min_size=4, max_size=4), st.floats(0.001, 0.2))
def test_no_tier_takes_more_than_a_twentieth_of_the_time(extra: list[float], pause: float) -> None:
    assert SHARE_OF_TIME <= 1 / 20
    clock = Clock(1000.0)
    floors = Floors(clock=clock)
    costs: dict[float, float] = {REACHES[0]: 0.0005}
    for wider, more in zip(REACHES[1:], extra, strict=True):
        costs[wider] = max(costs.values()) + more
    spent = dict.fromkeys(costs, 0.0)
    looks = dict.fromkeys(costs, 0)
    began = clock.now
    for _ in range(500):
        reach = floors.reach()
        clock.now += costs[reach]
        spent[reach] += costs[reach]
        looks[reach] += 1
        floors.advance(NOTHING, reach=reach, took=costs[reach])
        clock.now += pause
    for tier in REACHES[1:]:
        # The first look is not yet spaced by anything.
        assert spent[tier] <= (clock.now - began) * SHARE_OF_TIME + 2 * costs[tier], (tier, looks)


def test_the_reaper_begins_below_its_last_pass_and_now_and_then_from_the_first() -> None:
    clock = Clock(1000.0)
    floor = ReapFloor(clock=clock)
    assert floor.since() == "-infinity"
    floor.advance(NOON, whole=True, took=0.01)
    since = datetime.fromisoformat(floor.since())
    assert NOON - timedelta(minutes=1) <= since <= NOON
    clock.now += 1
    later = NOON + timedelta(seconds=1)
    floor.advance(later, whole=False, took=0.01)
    assert datetime.fromisoformat(floor.since()) > since
    clock.now += 3_600
    assert floor.since() == "-infinity"
    floor.advance(later, whole=True, took=30)
    clock.now += 30 / SHARE_OF_TIME - 1
    assert floor.since() != "-infinity", "no more than its share of the time"
    floor.drop()
    assert floor.since() == "-infinity"
