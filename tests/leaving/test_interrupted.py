"""Moves that are interrupted at any step, repeated, doubled or called back: every job is in exactly one database."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast._cli.session import CommandError
from holdfast._drivers import run_sync
from holdfast._store.moving import arrive_jobs, next_departure, refuse_arrival
from tests.traps.sessions import await_waiting, background
from tests.traps.workers import drain, enqueue, job, statuses

if TYPE_CHECKING:
    from tests.leaving.two import Two

STEPS = ("departed", "arrived", "marked", "confirmed", "released")


class Cut(Exception):  # noqa: N818 - not an error
    """The mover ends here."""


def cut_at(step: str) -> object:
    def progress(name: str, _tally: object) -> None:
        if name == step:
            raise Cut

    return progress


def everything(two: Two) -> list[int]:
    """Enqueue jobs of all sorts: plain, in an order key, after others."""
    ids = enqueue(two.here.conn, *[job(order_key=key) for key in (None, "a", None, "b", "a", "a")])
    return ids + enqueue(two.here.conn, job(after=ids[:2]), job(unique="u"))


def ran_once(two: Two, ids: list[int]) -> None:
    """Run all that is left on both sides, and find every job exactly once."""
    here, there = drain(two.here.worker()), drain(two.there.worker())
    moved = dict(two.here.rows("SELECT job_id, new_id FROM holdfast.moved"))
    assert sorted([*here, *(old for old, new in moved.items() if new in there)]) == sorted(ids)
    assert len(there) == len(set(there))
    assert two.here.live() == two.there.live() == 0


@pytest.mark.parametrize("step", STEPS)
def test_the_next_run_finishes_what_was_interrupted(two: Two, step: str) -> None:
    ids = everything(two)
    with pytest.raises(Cut):
        two.mover(batch=3, progress=cut_at(step)).move()
    two.mover(batch=3).move()
    assert two.here.live() == 0
    ran_once(two, ids)


@pytest.mark.parametrize("step", STEPS)
def test_a_killed_mover_leaves_nothing_undone(two: Two, step: str) -> None:
    ids = everything(two)
    command = [sys.executable, "-m", "tests.leaving.killed", two.here.url, two.there.url, step]
    assert subprocess.run(command, check=False, env=os.environ).returncode == -signal.SIGKILL  # noqa: S603 - ours
    two.mover().move()
    ran_once(two, ids)


@pytest.mark.parametrize("side", ["here", "there"])
@pytest.mark.parametrize("step", ["departed", "arrived", "marked"])
def test_a_lost_connection_ends_the_move_with_an_error_that_names_the_database(two: Two, side: str, step: str) -> None:
    ids = everything(two)
    mover = two.mover(batch=3)
    place = mover.source if side == "here" else mover.destination

    def cut(name: str, _tally: object) -> None:
        if name == step:
            getattr(two, side).conn.execute("SELECT pg_terminate_backend(%s)", [place.conn.info.backend_pid])

    mover.progress = cut
    with pytest.raises(CommandError, match=f"{side}: the connection to the database was lost"):
        mover.move()
    two.mover().move()
    ran_once(two, ids)


def test_a_batch_that_is_delivered_twice_arrives_once(two: Two) -> None:
    enqueue(two.here.conn, job(), job(unique="u"))
    with pytest.raises(Cut):
        two.mover(progress=cut_at("departed")).move()
    there, source = two.there.place(), two.here.place().identity
    departure = run_sync(two.here.conn, next_departure(there.identity))
    assert departure is not None
    first = run_sync(two.there.conn, arrive_jobs(departure, source))
    assert run_sync(two.there.conn, arrive_jobs(departure, source)) == first
    assert two.mover().move().arrived == 2
    assert run_sync(two.there.conn, arrive_jobs(departure, source)) == first, "a mover that stood still for long"
    assert two.there.live() == 2


def test_two_deliveries_at_once_wait_for_each_other(two: Two) -> None:
    enqueue(two.here.conn, job())
    with pytest.raises(Cut):
        two.mover(progress=cut_at("departed")).move()
    there, source = two.there.place(), two.here.place().identity
    departure = run_sync(two.here.conn, next_departure(there.identity))
    assert departure is not None
    with two.there.connect() as first:
        first.autocommit = False
        one = run_sync(first, arrive_jobs(departure, source))
        with background(lambda: run_sync(there.conn, arrive_jobs(departure, source))) as second:
            await_waiting(two.there.conn, there.conn.info.backend_pid)
            first.commit()
        assert second.result(30) == one
    assert two.there.live() == 1


@pytest.mark.parametrize("step", ["departed", "arrived"])
def test_what_has_not_arrived_can_be_called_back(two: Two, step: str) -> None:
    ids = everything(two)
    before = {id_: two.here.job(id_) for id_ in ids}
    with pytest.raises(Cut):
        two.mover(batch=4, progress=cut_at(step)).move()
    tally = two.mover().call_back()
    assert (tally.returned > 0, tally.arrived > 0) == (step == "departed", step == "arrived")
    for id_ in ids if step == "departed" else ():
        after = two.here.job(id_)
        assert {name for name in after if after[name] != before[id_][name]} <= {"available_at"}
    assert (two.here.value("SELECT count(*) FROM holdfast.order_stop") == 0) == (step == "departed")
    if step == "arrived":
        two.mover().move()
    ran_once(two, ids)


def test_a_batch_that_was_called_back_never_arrives(two: Two) -> None:
    ids = everything(two)
    with pytest.raises(Cut):
        two.mover(progress=cut_at("departed")).move()
    there, source = two.there.place(), two.here.place().identity
    departure = run_sync(two.here.conn, next_departure(there.identity))
    assert departure is not None
    two.mover().call_back()
    assert run_sync(two.there.conn, arrive_jobs(departure, source)).refused
    assert two.there.live() == 0
    assert two.mover().move().arrived == len(ids), "the same jobs may move later, in another batch"
    ran_once(two, ids)


def test_a_mover_whose_batch_is_refused_takes_it_back(two: Two) -> None:
    ids = everything(two)
    with pytest.raises(Cut):
        two.mover(progress=cut_at("departed")).move()
    there, source = two.there.place(), two.here.place().identity
    departure = run_sync(two.here.conn, next_departure(there.identity))
    assert departure is not None
    assert run_sync(two.there.conn, refuse_arrival(departure, source)).refused
    tally = two.mover(limit=1).move()
    assert (tally.returned > 0, tally.arrived) == (True, 1)
    two.mover().move()
    ran_once(two, ids)


def test_called_back_with_a_unique_key_that_is_taken_it_is_a_duplicate(two: Two) -> None:
    enqueue(two.here.conn, job(unique="u"))
    with pytest.raises(Cut):
        two.mover(progress=cut_at("departed")).move()
    (taken,) = enqueue(two.here.conn, job(unique="u"))
    tally = two.mover().call_back()
    assert (tally.returned, tally.duplicates) == (0, 1)
    assert list(statuses(two.here.conn)) == [taken]


def test_a_departure_is_on_disk_although_the_session_commits_asynchronously(two: Two) -> None:
    """A source that forgot in a crash that its jobs have left would run them again."""
    conn = two.here.connect()
    with conn.transaction():
        conn.execute("SET LOCAL synchronous_commit = off")
        conn.execute("SELECT holdfast.depart_jobs(gen_random_uuid(), 'x', NULL, NULL, 0, 9, 9)")
        assert conn.execute("SHOW synchronous_commit").fetchall() == [("on",)]


def test_arrivals_are_confirmed_when_the_source_has_marked_them(two: Two) -> None:
    everything(two)
    with pytest.raises(Cut):
        two.mover(progress=cut_at("arrived")).move()
    two.mover().confirm()
    open_ = "SELECT count(*) FROM holdfast.arrival WHERE confirmed_at IS NULL"
    assert two.there.value(open_) == 1, "the source has not marked it"
    two.mover().move()
    assert two.there.value(open_) == 0


def test_a_wait_for_another_session_is_bounded_and_repeated(two: Two) -> None:
    enqueue(two.here.conn, job(unique="u"))
    holder = two.there.connect()
    mover = two.mover()
    with background(mover.move) as moved:
        with holder.transaction():
            enqueue(holder, job(unique="u"))
            with pytest.raises(psycopg.errors.RaiseException), two.there.conn.transaction():
                two.there.conn.execute("DO $$ BEGIN RAISE EXCEPTION 'in the way'; END $$")
        tally = moved.result(60)
    assert tally.arrived + tally.duplicates == 1
