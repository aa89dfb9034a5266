"""Single jobs that move: what they keep, which of them stay, and what the source says of those that have left."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast._drivers import run_sync
from holdfast._model.errors import AlreadyReplayed, InvalidJob, WrongIsolation
from holdfast._model.job import Job
from holdfast._store.claim import claim_jobs
from holdfast._store.moving import Which, delete_moved, depart_jobs, find_moved
from holdfast._store.search import cancel_job, replay_job
from tests.traps.workers import FAILED, RETRIED, drain, enqueue, expire_leases, fill, job

if TYPE_CHECKING:
    from tests.leaving.two import Two

# Columns that differ between two databases: the id, the place in an order key, the chain, and what comes of them.
OWN = {"id", "order_seq", "shard", "headers", "chain_id"}
# Columns of a job that is claimed, that waits for others, or that a claim decides.
NOT_MOVED = {"locked_until", "lock_token", "locked_by", "later", "progress", "progress_note", "awaited", "replay_of"}


def test_a_job_keeps_all_that_handlers_and_operators_see(two: Two) -> None:
    worker = two.here.worker()
    new = job(
        payload='{"b": 1.10, "a":  "é"}',
        queue="default",
        priority=3,
        headers={"tenant": "7"},
        max_attempts=4,
        expires=timedelta(days=2),
        unique="u",
    )
    (old,) = enqueue(two.here.conn, new)
    worker.end(worker.claim(), RETRIED)
    before = two.here.job(old)
    assert two.mover().move().arrived == 1
    after = two.there.job(two.new_id(old))
    assert two.here.live() == 0
    assert {name for name in before if before[name] != after[name]} <= OWN | {"available_at"}
    assert two.there.value("SELECT payload::text FROM holdfast.job") == '{"b": 1.10, "a":  "é"}'
    assert after["attempt"] == 1
    assert after["last_error"] == "it broke"
    assert after["headers"]["tenant"] == "7"


def test_every_column_of_a_job_moves_or_is_known_not_to(two: Two) -> None:
    columns = {name for (name,) in two.here.rows(
        "SELECT attname FROM pg_attribute WHERE attrelid = 'holdfast.job'::regclass AND attnum > 0 AND NOT attisdropped"
    )}  # fmt: skip
    enqueue(two.here.conn, job())
    two.here.conn.execute("SELECT holdfast.depart_jobs(gen_random_uuid(), 'x', NULL, NULL, 0, 100, 1)")
    body = two.here.value("SELECT body FROM holdfast.departure")
    assert columns - set(body[0]["job"]) == NOT_MOVED - {"replay_of"} | {"shard"}


def test_scheduled_jobs_keep_their_time_and_due_ones_are_due(two: Two) -> None:
    later, due = enqueue(two.here.conn, job(delay=timedelta(hours=5)), job())
    before = two.here.job(later)["available_at"]
    two.mover().move()
    after = two.there.job(two.new_id(later))
    assert (after["available_at"], after["later"]) == (before, True)
    worker = two.there.worker()
    assert [claimed.id for claimed in worker.claim()] == [two.new_id(due)]


def test_running_jobs_stay(two: Two) -> None:
    worker = two.here.worker()
    enqueue(two.here.conn, job(), job())
    (running,) = worker.claim(1)
    assert two.mover().move().arrived == 1
    worker.end([running])
    assert two.here.live() == 0
    assert two.there.live() == 1


def test_a_locked_job_is_not_waited_for(two: Two) -> None:
    locked, free = enqueue(two.here.conn, job(), job())
    holder = two.here.connect()
    with holder.transaction():
        holder.execute("SELECT FROM holdfast.job WHERE id = %s FOR KEY SHARE", [locked])
        assert two.mover().move().arrived == 1
    assert two.new_id(free)
    assert two.mover().move().arrived == 1


def test_only_the_queues_and_kinds_that_were_asked_for_move(two: Two) -> None:
    enqueue(two.here.conn, job("a", queue="p"), job("b", queue="p"), job("a", queue="q"), job("c", queue="q"))
    assert two.mover(Which(queues=("p",), kinds=("a", "c"))).move().arrived == 1
    assert two.mover(Which(kinds=("a", "c"))).move().arrived == 2
    assert two.here.live() == 1


def test_the_limit_holds_over_batches(two: Two) -> None:
    fill(two.here.conn, 50)
    assert two.mover(batch=7, limit=20).move().arrived == 20
    assert (two.here.live(), two.there.live()) == (30, 20)


def test_large_payloads_move_in_small_batches(two: Two) -> None:
    enqueue(two.here.conn, *[job(payload=f'"{"é" * 1_000_000}"')] * 3)
    two.here.conn.execute("ALTER TABLE holdfast.job ALTER payload SET STORAGE EXTERNAL")
    enqueue(two.here.conn, *[job(payload=f'"{"é" * 3_000_000}"')] * 3)
    assert two.mover().move().arrived == 6
    assert two.here.value("SELECT count(*) FROM holdfast.departure") > 1


def test_jobs_enqueued_after_the_start_are_left_to_the_next_run(two: Two) -> None:
    enqueue(two.here.conn, job())
    mover = two.mover()

    def one_more(step: str, _tally: object) -> None:
        if step == "departed":
            enqueue(two.here.conn, job())

    mover.progress = one_more
    assert mover.move().arrived == 1
    assert two.here.live() > 0


def test_the_idempotency_key_stays_the_same(two: Two) -> None:
    (old,) = enqueue(two.here.conn, job(headers={"a": "b"}))
    key = f"holdfast:{two.here.place().identity}:{old}"
    two.mover().move()
    headers = two.there.job(two.new_id(old))["headers"]
    assert Job(id=two.new_id(old), kind="k", state=None, headers=headers).idempotency_key == key
    assert Job(id=two.new_id(old) + 1, kind="k", state=None, headers=headers).idempotency_key != key, "inherited"
    two.mover_back().move()
    (there_and_back,) = two.here.rows("SELECT id, headers FROM holdfast.job")
    assert there_and_back[0] != old
    assert Job(id=there_and_back[0], kind="k", state=None, headers=there_and_back[1]).idempotency_key == key


def test_a_unique_key_of_a_live_job_there_makes_it_a_duplicate(two: Two) -> None:
    (there,) = enqueue(two.there.conn, job(unique="u"))
    old, other_kind = enqueue(two.here.conn, job(unique="u"), job("other", unique="u"))
    tally = two.mover().move()
    assert (tally.arrived, tally.duplicates) == (1, 1)
    assert two.new_id(old) == there
    assert two.new_id(other_kind) != there
    assert two.there.live() == 2


def test_a_job_that_will_not_run_gives_its_unique_key_up(two: Two) -> None:
    (there,) = enqueue(two.there.conn, job(unique="u", order_key="k"))
    assert run_sync(two.there.conn, cancel_job(there)) == "requested"
    (old,) = enqueue(two.here.conn, job(unique="u"))
    assert two.mover().move().arrived == 1
    assert two.new_id(old) != there


def test_a_suspect_stays_one(two: Two) -> None:
    worker = two.here.worker()
    enqueue(two.here.conn, job())
    expire_leases(two.here.conn, worker.claim())
    worker.reap()
    two.mover().move()
    there = two.there.worker()
    assert run_sync(there.conn, claim_jobs(there.id, {"default": 1}, there.leases)).jobs == []
    assert len(there.claim_suspects()) == 1


def test_a_dead_letter_is_not_replayed_again_while_its_replay_is_there(two: Two) -> None:
    worker = two.here.worker()
    (dead,) = enqueue(two.here.conn, job())
    worker.end(worker.claim(), FAILED)
    replay = run_sync(two.here.conn, replay_job(dead))
    assert two.mover().move().arrived == 1
    with pytest.raises(AlreadyReplayed) as refused:
        run_sync(two.here.conn, replay_job(dead))
    assert refused.value.replay_id == replay


def test_all_run_there_and_none_here(two: Two) -> None:
    ids = enqueue(two.here.conn, *[job() for _ in range(120)])
    two.mover(batch=50).move()
    assert drain(two.here.worker()) == []
    assert sorted(drain(two.there.worker())) == sorted(two.new_ids(ids))


def test_only_a_read_committed_transaction_moves(two: Two) -> None:
    conn = two.here.connect()
    conn.execute("SET default_transaction_isolation = 'repeatable read'")
    with pytest.raises(WrongIsolation):
        run_sync(conn, depart_jobs(two.there.place().identity, "there", Which(), since=0, last=1, limit=1))


def test_a_database_does_not_move_jobs_to_itself(two: Two) -> None:
    with pytest.raises(InvalidJob, match="another database"):
        run_sync(two.here.conn, depart_jobs(two.here.place().identity, "here", Which(), since=0, last=1, limit=1))


def test_records_of_moves_are_deleted_after_fourteen_days(two: Two) -> None:
    (old,) = enqueue(two.here.conn, job())
    two.mover().move()
    for side in (two.here, two.there):
        assert run_sync(side.conn, delete_moved()) == 0
    two.here.conn.execute("UPDATE holdfast.departure SET arrived_at = now() - interval '14 days 1 second'")
    two.there.conn.execute("UPDATE holdfast.arrival SET confirmed_at = now() - interval '14 days 1 second'")
    assert [run_sync(side.conn, delete_moved()) for side in (two.here, two.there)] == [1, 1]
    assert run_sync(two.here.conn, find_moved(old)) is None


def test_a_batch_that_has_not_arrived_is_kept_for_ever(two: Two) -> None:
    enqueue(two.here.conn, job())
    run_sync(two.here.conn, depart_jobs(two.there.place().identity, "there", Which(), since=0, last=9, limit=9))
    two.here.conn.execute("UPDATE holdfast.departure SET departed_at = now() - interval '1 year'")
    assert run_sync(two.here.conn, delete_moved()) == 0
    assert two.mover().move().arrived == 1
