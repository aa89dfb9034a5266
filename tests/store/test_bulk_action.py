"""Bulk actions, portion by portion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast._drivers import run_sync
from holdfast._model.unique import Unique
from holdfast._ops.requests import JobFilter
from holdfast._store.bulk_action import (
    Portion,
    advance_bulk_action,
    delete_bulk_actions,
    is_bulk_action_open,
    resume_bulk_action,
    stop_bulk_action,
)
from holdfast._store.bulk_action_line import BulkAction, list_bulk_actions, read_bulk_action
from tests.kit.bulk import begin, dead_letters, retried
from tests.kit.workers import FAILED, Worker, enqueue, fill, job, number

if TYPE_CHECKING:
    import psycopg

    from tests.kit.workers import Connect


def advance(conn: psycopg.Connection[Any], most: int = 100, only: int | None = None) -> Portion:
    portion = run_sync(conn, advance_bulk_action(only, most=most))
    assert portion is not None
    return portion


def carry_out(conn: psycopg.Connection[Any], most: int = 100) -> list[Portion]:
    """Return every portion until the action has ended."""
    portions = []
    for _ in range(1_000):
        portions.append(advance(conn, most))
        if portions[-1].ended:
            return portions
    raise AssertionError("it did not end")


def read(conn: psycopg.Connection[Any], id_: int) -> BulkAction:
    line = run_sync(conn, read_bulk_action(id_))
    assert line is not None
    return line


def test_every_dead_letter_is_retried_once_and_oldest_first(worker: Worker) -> None:
    dead = dead_letters(worker, 25)
    id_ = begin(worker.conn, expected=25)
    portions = carry_out(worker.conn, 10)
    assert [len(portion.ids) for portion in portions] == [10, 10, 5]
    assert retried(worker.conn) == dead
    line = read(worker.conn, id_)
    assert (line.state, line.done, line.refused, line.progress, line.who) == ("completed", 25, 0, 1.0, "ann")
    assert run_sync(worker.conn, advance_bulk_action()) is None
    assert not run_sync(worker.conn, is_bulk_action_open())


def test_a_portion_that_is_rolled_back_is_acted_on_again(worker: Worker) -> None:
    dead = dead_letters(worker, 6)
    begin(worker.conn)
    advance(worker.conn, 2)
    with worker.conn.transaction(force_rollback=True):
        assert advance(worker.conn, 2).ids == dead[2:4]
    assert retried(worker.conn) == dead[:2]
    assert advance(worker.conn, 2).ids == dead[2:4]


def test_two_processes_never_act_on_the_same_portion(worker: Worker, connect: Connect) -> None:
    dead = dead_letters(worker, 6)
    begin(worker.conn)
    other = connect()
    with worker.conn.transaction():
        assert advance(worker.conn, 2).ids == dead[:2]
        held = advance(other, 2)
        assert (held.bulk, held.wait_ms) == (None, 100)
    assert advance(other, 2).ids == dead[2:4]


def test_what_fails_again_or_comes_later_is_left_alone(worker: Worker) -> None:
    dead_letters(worker, 3)
    begin(worker.conn)
    later = dead_letters(worker, 2)
    assert len(advance(worker.conn, 2).ids) == 2
    worker.end(worker.claim(2), FAILED)
    portions = carry_out(worker.conn)
    assert sum(len(portion.ids) for portion in portions) == 1
    assert not {*later} & {*retried(worker.conn)}


def test_the_rate_holds_over_any_number_of_portions(worker: Worker) -> None:
    dead_letters(worker, 40)
    begin(worker.conn, rate=0.1)
    assert len(advance(worker.conn).ids) == 1
    waits = advance(worker.conn)
    assert (waits.bulk, waits.wait_ms > 5_000) == (None, True)
    # After a pause, at most one second is caught up with, in portions of half a second.
    worker.conn.execute("UPDATE holdfast.bulk_action SET next_at = now() - interval '1 hour', rate = 10")
    portions = [advance(worker.conn) for _ in range(6)]
    assert {len(portion.ids) for portion in portions if portion.bulk} == {5}
    assert 15 <= sum(len(portion.ids) for portion in portions if portion.bulk) < 30


def test_it_ends_after_its_limit(worker: Worker) -> None:
    dead = dead_letters(worker, 10)
    id_ = begin(worker.conn, most=7)
    assert [len(portion.ids) for portion in carry_out(worker.conn, 4)] == [4, 3]
    assert retried(worker.conn) == dead[:7]
    assert read(worker.conn, id_).state == "completed"


def test_a_job_that_can_never_be_acted_on_stops_no_other(worker: Worker) -> None:
    dead = dead_letters(worker, 5)
    worker.conn.execute(
        f"""
        CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$;
        CREATE TRIGGER refuse BEFORE INSERT ON holdfast.job FOR EACH ROW WHEN (NEW.replay_of = {dead[2]})
        EXECUTE FUNCTION public.refuse()
        """.encode()
    )
    id_ = begin(worker.conn)
    carry_out(worker.conn, 2)
    line = read(worker.conn, id_)
    assert (line.state, line.done, line.refused) == ("completed", 4, 1)
    assert [(one.id, one.why) for one in line.refusals] == [(dead[2], "error P0001")]
    assert retried(worker.conn) == [one for one in dead if one != dead[2]]


def test_only_the_first_twenty_refusals_are_kept(worker: Worker) -> None:
    enqueue(worker.conn, *(job(unique=Unique(str(n))) for n in range(50)))
    worker.end(worker.claim(50), FAILED)
    enqueue(worker.conn, *(job(unique=Unique(str(n))) for n in range(50)))
    id_ = begin(worker.conn)
    carry_out(worker.conn, 10)
    line = read(worker.conn, id_)
    assert (line.done, line.refused, len(line.refusals)) == (0, 50, 20)


def test_stopped_and_resumed_it_goes_on_where_it_was(worker: Worker) -> None:
    dead = dead_letters(worker, 6)
    id_ = begin(worker.conn)
    advance(worker.conn, 2)
    assert run_sync(worker.conn, stop_bulk_action(id_, "bob"))
    assert not run_sync(worker.conn, stop_bulk_action(id_, "eve"))
    assert run_sync(worker.conn, advance_bulk_action()) is None
    line = read(worker.conn, id_)
    assert (line.state, line.stopped_by, line.done) == ("stopped", "bob", 2)
    assert run_sync(worker.conn, resume_bulk_action(id_))
    assert not run_sync(worker.conn, resume_bulk_action(id_))
    assert advance(worker.conn).ids == dead[2:]


@pytest.mark.parametrize(("action", "left"), [("cancel", "cancelled"), ("delete", None)])
def test_what_waits_is_cancelled_or_deleted(worker: Worker, action: str, left: str | None) -> None:
    first, *others = enqueue(worker.conn, *(job() for _ in range(5)))
    enqueue(worker.conn, job("other"))
    worker.conn.execute(
        "UPDATE holdfast.job SET status = 'processing', locked_by = 1, lock_token = 1 WHERE id = %s", [first]
    )
    id_ = begin(worker.conn, action, kind="k")
    carry_out(worker.conn, 2)
    assert read(worker.conn, id_).done == 4
    assert number(worker.conn, "SELECT count(*) FROM holdfast.job") == 2
    ended = worker.conn.execute("SELECT id, status::text FROM holdfast.job_history ORDER BY id").fetchall()
    assert ended == [(one, left) for one in others if left]


@pytest.mark.parametrize("action", ["cancel", "retry"])
def test_a_tag_leaves_the_others_alone(worker: Worker, action: str) -> None:
    tagged, *_ = enqueue(worker.conn, job(tags=["eu", "vip"]), job(), job(tags=["us"]))
    if action == "retry":
        worker.end(worker.claim(), FAILED)
    id_ = begin(worker.conn, action, tag="vip")
    [portion] = carry_out(worker.conn)
    assert (portion.ids, read(worker.conn, id_).tag) == ([tagged], "vip")


def test_the_ids_of_deleted_jobs_are_in_the_audit(worker: Worker) -> None:
    ids = enqueue(worker.conn, *(job() for _ in range(5)))
    id_ = begin(worker.conn, "delete")
    carry_out(worker.conn, 2)
    rows = worker.conn.execute("SELECT who, role, action, ids, detail FROM holdfast.audit ORDER BY id").fetchall()
    assert [one for row in rows for one in row[3]] == ids
    assert {(who, role, action, detail["bulk_action"]) for who, role, action, _, detail in rows} == {
        ("ann", "operator", "jobs.delete", id_)
    }


def test_no_portion_looks_at_more_than_five_thousand_jobs(worker: Worker) -> None:
    fill(worker.conn, 12_000, kind="other")
    (last,) = enqueue(worker.conn, job())
    begin(worker.conn, "cancel", kind="k")
    portions = carry_out(worker.conn)
    assert [len(portion.ids or ()) for portion in portions] == [0, 0, 1]
    assert portions[-1].ids == [last]


def test_no_more_than_a_hundred_are_open(worker: Worker) -> None:
    for _ in range(100):
        begin(worker.conn)
    with pytest.raises(AssertionError):
        begin(worker.conn)
    assert len(run_sync(worker.conn, list_bulk_actions(limit=200))) == 100


def test_ended_ones_are_deleted_with_their_dead_letters(worker: Worker) -> None:
    old, new = begin(worker.conn), begin(worker.conn)
    carry_out(worker.conn)
    carry_out(worker.conn)
    worker.conn.execute("UPDATE holdfast.bulk_action SET ended_at = now() - interval '91 days' WHERE id = %s", [old])
    assert run_sync(worker.conn, delete_bulk_actions()) == 1
    assert [line.id for line in run_sync(worker.conn, list_bulk_actions())] == [new]


def test_every_filter_of_jobs_is_one_of_a_bulk_action(worker: Worker) -> None:
    """Without it, an action would be done to jobs that its preview did not show."""
    (wanted, *_) = enqueue(worker.conn, job(order_key="a", unique=Unique("a"), tags=["a"]), job(), job("other"))
    begin(worker.conn, "cancel", kind="k", queue="default", order_key="a", unique_key="a", tag="a")
    assert [portion.ids for portion in carry_out(worker.conn)] == [[wanted]]
    others = {"status", "text"}  # statuses, and a text, which is searched for before
    assert set(JobFilter.model_fields) - others <= set(BulkAction.model_fields)
