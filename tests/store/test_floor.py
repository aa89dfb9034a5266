from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from holdfast.store.floor import PRIORITIES, REACHES, SHARE_OF_TIME, Floors, ReapFloor

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOTHING: list[Any] = []


class Taken(NamedTuple):
    queue: str
    priority: int
    kind: str
    available_at: datetime


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def texts(floors: Floors, queues: list[str], kinds: list[str]) -> list[str]:
    return floors.array(queues, kinds).strip("{}").split(",")


def learn(floors: Floors, *taken: Taken, reach: float = REACHES[0], took: float = 0.001) -> None:
    jobs: list[Any] = list(taken)
    floors.advance(jobs, reach=reach, took=took)


def test_floors_stand_where_the_claim_looks_for_them() -> None:
    floors = Floors()
    learn(floors, Taken("b", 3, "y", NOON))
    found = texts(floors, ["a", "b"], ["x", "y", "z"])
    assert len(found) == 2 * PRIORITIES * 3
    # As claim_jobs counts, from one: ((queue - 1) * 10 + priority) * kinds + kind.
    assert [n for n, text in enumerate(found, 1) if text != "-infinity"] == [(1 * 10 + 3) * 3 + 2]
    assert datetime.fromisoformat(found[(1 * 10 + 3) * 3 + 1]) == NOON


def test_a_floor_never_falls() -> None:
    floors = Floors()
    for minutes in (0, 2, 1):
        learn(floors, Taken("q", 0, "k", NOON + timedelta(minutes=minutes)))
    assert datetime.fromisoformat(texts(floors, ["q"], ["k"])[0]) == NOON + timedelta(minutes=2)
    learn(floors, *(Taken("q", 0, "k", NOON + timedelta(minutes=minutes)) for minutes in (9, 7, 8)))
    assert datetime.fromisoformat(texts(floors, ["q"], ["k"])[0]) == NOON + timedelta(minutes=9)


def test_the_first_look_reaches_everything_and_so_does_the_first_after_a_drop() -> None:
    clock = Clock()
    floors = Floors(clock=clock)
    assert floors.reach() == REACHES[-1]
    learn(floors, Taken("q", 0, "k", NOON), reach=REACHES[-1], took=60)
    assert floors.reach() != REACHES[-1]
    floors.drop()
    assert floors.reach() == REACHES[-1]
    assert set(texts(floors, ["q"], ["k"])) == {"-infinity"}


def test_a_costly_full_look_does_not_put_off_the_narrow_ones() -> None:
    """A job that commits a second late must not wait until ten seconds of sweeping have been made up for."""
    clock = Clock()
    floors = Floors(clock=clock)
    learn(floors, reach=REACHES[-1], took=10)
    clock.now += 1
    assert floors.reach() in REACHES[1:-1]
    clock.now += 10 / SHARE_OF_TIME - 2
    assert floors.reach() != REACHES[-1]
    clock.now += 2
    assert floors.reach() == REACHES[-1]


@given(st.lists(st.sampled_from([0.0005, 0.004, 0.05]), min_size=3, max_size=3), st.floats(0.001, 0.2))
def test_no_tier_takes_more_than_a_twentieth_of_the_time(extra: list[float], pause: float) -> None:
    assert SHARE_OF_TIME <= 1 / 20
    clock = Clock()
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
    clock = Clock()
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
