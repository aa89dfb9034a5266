from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast._drivers import run_sync
from holdfast._model.schedule import Cron, Every, parse
from holdfast._store.schedule import (
    ScheduleScan,
    Slot,
    claim_slot,
    edit_schedule,
    end_slot,
    list_schedules,
    look_at_schedule,
    pause_schedule,
    register_schedules,
    remove_schedule,
    renew_slot,
    resume_schedule,
    set_next,
    trigger_schedule,
)
from tests.kit.fleet import make_due, runs, schedule

if TYPE_CHECKING:
    import psycopg

    from tests.kit.fleet import Connect

HOUR = Every(timedelta(hours=1))
MINUTE = timedelta(minutes=1)


def stored(conn: psycopg.Connection[Any], name: str = "bill", every: Every | Cron = HOUR) -> None:
    """Store a schedule of a runner, and work out its first slot."""
    run_sync(conn, register_schedules([(name, every, None)]))
    look = looked(conn, name)
    if look.next_at is None:
        assert run_sync(conn, set_next({name: look}))


def looked(conn: psycopg.Connection[Any], name: str = "bill") -> ScheduleScan:
    look = run_sync(conn, look_at_schedule(name))
    assert look is not None
    return look


def claim(
    conn: psycopg.Connection[Any], look: ScheduleScan | None = None, *, worker: int = 1, lease: timedelta = MINUTE
) -> Slot | None:
    return run_sync(conn, claim_slot("bill", look or looked(conn), worker=worker, lease=lease))


def expire(conn: psycopg.Connection[Any]) -> None:
    """Let the lease of the slot that runs have ended a second ago: its holder is gone."""
    conn.execute("UPDATE holdfast.schedule SET locked_until = clock_timestamp() - interval '1 second'")


def test_the_first_slot_is_the_next_one_and_not_now(connect: Connect) -> None:
    conn = connect()
    stored(conn)
    look = looked(conn)
    assert look.next_at == HOUR.next(look.now)
    assert not look.claimable
    assert claim(conn) is None


def test_a_slot_is_claimed_once(connect: Connect) -> None:
    conn = connect()
    stored(conn)
    make_due(conn, "bill")
    look = looked(conn)
    assert look.claimable
    slot = claim(conn, look)
    assert slot is not None
    assert (slot.at, slot.attempt) == (look.next_at, 1)
    # Whoever looked at the same time comes too late, and so does whoever looks now.
    assert claim(conn, look, worker=2) is None
    assert not looked(conn).claimable
    assert schedule(conn, "bill", "last_at, next_at") == (look.next_at, HOUR.next(look.now))


def test_two_transactions_at_once(connect: Connect) -> None:
    conn, other = connect(), connect()
    stored(conn)
    make_due(conn, "bill")
    look = looked(conn)
    with conn.transaction():
        assert claim(conn, look) is not None
        assert claim(other, look, worker=2) is None  # and did not wait
    assert claim(other, look, worker=2) is None


def test_a_missed_slot_runs_once_late(connect: Connect) -> None:
    conn = connect()
    stored(conn)
    make_due(conn, "bill", ago=10 * 3600)
    look = looked(conn)
    slot = claim(conn)
    assert slot is not None
    assert slot.at == look.next_at  # the first that was missed, and the others with it
    assert run_sync(conn, end_slot("bill", slot, worker=1))
    assert claim(conn) is None
    assert schedule(conn, "bill", "next_at > now()") == (True,)


def test_the_next_slot_waits_while_one_runs(connect: Connect) -> None:
    conn = connect()
    stored(conn)
    make_due(conn, "bill")
    slot = claim(conn)
    assert slot is not None
    make_due(conn, "bill")
    assert claim(conn, worker=2) is None
    run_sync(conn, end_slot("bill", slot, worker=1))
    assert claim(conn, worker=2) is not None


def test_only_the_holder_renews_and_ends(connect: Connect) -> None:
    conn = connect()
    stored(conn)
    make_due(conn, "bill")
    slot = claim(conn)
    assert slot is not None
    assert run_sync(conn, renew_slot("bill", slot, worker=1, lease=MINUTE))
    strangers = [(slot, 2), (slot._replace(token=slot.token - 1), 1)]
    for stranger, worker in strangers:
        assert not run_sync(conn, renew_slot("bill", stranger, worker=worker, lease=MINUTE))
        assert not run_sync(conn, end_slot("bill", stranger, worker=worker, outcome="completed"))
    expire(conn)
    taken = claim(conn, worker=2)
    assert taken is not None
    assert not run_sync(conn, renew_slot("bill", slot, worker=1, lease=MINUTE))
    assert not run_sync(conn, end_slot("bill", slot, worker=1, outcome="completed", counts='{"zombie": 1}'))
    assert [row[1] for row in runs(conn)] == ["lost", None]


def test_a_slot_whose_holder_died_runs_again_and_is_given_up_after_three_times(connect: Connect) -> None:
    conn = connect()
    stored(conn)
    make_due(conn, "bill")
    first = claim(conn)
    assert first is not None
    assert claim(conn, worker=2) is None
    for attempt in (2, 3):
        expire(conn)
        slot = claim(conn, worker=attempt)
        assert slot is not None
        assert (slot.at, slot.attempt) == (first.at, attempt)
    expire(conn)
    assert claim(conn, worker=4) is None
    assert schedule(conn, "bill", "slot_at, locked_by, attempt, next_at > now()") == (None, None, 0, True)
    lost = conn.execute("SELECT id, worker_id, outcome, error_code FROM holdfast.run ORDER BY worker_id").fetchall()
    assert [row[1:] for row in lost] == [(worker, "lost", "lost") for worker in (1, 2, 3)]
    assert lost[0][0] == first.run_id
    # The next slot is as any other.
    make_due(conn, "bill")
    slot = claim(conn)
    assert slot is not None
    assert slot.attempt == 1


def test_a_slot_given_back_is_not_counted(connect: Connect) -> None:
    conn = connect()
    stored(conn)
    make_due(conn, "bill")
    first = claim(conn)
    assert first is not None
    assert run_sync(conn, end_slot("bill", first, worker=1, again=True))
    again = claim(conn, worker=2)
    assert again is not None
    assert (again.at, again.attempt) == (first.at, 1)
    assert runs(conn) == [("bill", None, None, None)], "the one that did not run has left no row"


def test_pausing_and_resuming(connect: Connect) -> None:
    conn = connect()
    stored(conn)
    assert run_sync(conn, pause_schedule("bill"))
    make_due(conn, "bill", ago=7200)
    assert (looked(conn).claimable, claim(conn)) == (False, None)
    assert run_sync(conn, resume_schedule("bill"))
    # From the next slot on: what was missed meanwhile is not run.
    assert schedule(conn, "bill", "next_at, paused") == (None, False)
    stored(conn)
    assert claim(conn) is None
    # Resuming what goes on changes nothing.
    make_due(conn, "bill")
    assert run_sync(conn, resume_schedule("bill"))
    assert claim(conn) is not None


@pytest.mark.parametrize("paused", [False, True])
def test_triggering(connect: Connect, paused: bool) -> None:
    conn = connect()
    stored(conn)
    (before,) = schedule(conn, "bill", "next_at")
    if paused:
        run_sync(conn, pause_schedule("bill"))
    assert run_sync(conn, trigger_schedule("bill"))
    slot = claim(conn)
    assert slot is not None
    assert slot.at <= datetime.now(UTC) + MINUTE
    run_sync(conn, end_slot("bill", slot, worker=1))
    assert claim(conn) is None
    assert schedule(conn, "bill", "next_at, triggered_at, paused") == (before, None, paused)


def test_an_edit_stays_until_the_code_says_something_new(connect: Connect) -> None:
    conn = connect()
    stored(conn)
    assert run_sync(conn, edit_schedule("bill", Cron("0 5 * * *", tz="Europe/Warsaw")))
    (line,) = run_sync(conn, list_schedules())
    assert (line.schedule, line.edited, line.next_at) == ("0 5 * * * Europe/Warsaw", True, None)
    stored(conn)
    assert looked(conn).next_at == parse("0 5 * * * Europe/Warsaw").next(looked(conn).now)
    assert run_sync(conn, register_schedules([("bill", HOUR, None)])) == []
    assert looked(conn).text == "0 5 * * * Europe/Warsaw"
    day = Every(timedelta(days=1))
    assert run_sync(conn, register_schedules([("bill", day, None)])) == ["bill"]
    assert (looked(conn).text, looked(conn).next_at) == (day.text, None)
    (line,) = run_sync(conn, list_schedules())
    assert not line.edited


def test_what_is_not_there(connect: Connect) -> None:
    conn = connect()
    for change in (pause_schedule, resume_schedule, trigger_schedule, remove_schedule):
        assert not run_sync(conn, change("nothing"))
    assert not run_sync(conn, edit_schedule("nothing", HOUR))
    assert run_sync(conn, look_at_schedule("nothing")) is None
    stored(conn)
    assert run_sync(conn, remove_schedule("bill"))
