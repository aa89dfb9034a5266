"""The rows of stories: fenced, free for all other jobs, and gone with the job, whose ended row has the journal."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast._drivers import run_sync
from holdfast._model.outcome import Completed, Rescheduled
from holdfast._model.unique import Unique
from holdfast._store.lease import Held
from holdfast._store.step import NewStep, Recorded, Saved, load_steps, save_step, save_steps, take_message
from tests.kit.workers import AT_ONCE, FAILED, Worker, enqueue, expire_leases, job, statuses

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._model.outcome import Outcome
    from holdfast._store.claim import ClaimedJob

    Connection = psycopg.Connection[Any]

COLUMNS = "at, due, state, beside, name, key, result"


def held(claimed: ClaimedJob) -> Held:
    return Held(claimed.id, claimed.token)


def save(worker: Worker, claimed: ClaimedJob, name: str, result: str = "1", **fields: Any) -> Saved:
    (saved,) = run_sync(worker.conn, save_steps(worker.id, [NewStep(held(claimed), (name, None), result, **fields)]))
    return saved


def send(conn: Connection, chain: int, name: str, payload: str = "1", key: str | None = None) -> str:
    row = conn.execute("SELECT holdfast.send_message(%s, %s, %s::json, %s)", [chain, name, payload, key]).fetchone()
    assert row is not None
    return str(row[0])


def steps(conn: Connection) -> list[tuple[Any, ...]]:
    return conn.execute("SELECT job_id, name, key, state::text, result FROM holdfast.step ORDER BY at, name").fetchall()


def journals(conn: Connection) -> list[Any]:
    tables = b"SELECT steps FROM holdfast.job_history UNION ALL SELECT steps FROM holdfast.job_failed"
    return [journal for (journal,) in conn.execute(tables)]


@pytest.fixture
def worker(conn: Connection) -> Worker:
    return Worker(conn)


def test_one_statement_records_steps_of_many_stories(conn: Connection, worker: Worker) -> None:
    enqueue(conn, job(), job())
    first, second = worker.claim()
    batch = [
        NewStep(held(first), ("a", None), '{"x": null, "y": "\\u00e4"}'),
        NewStep(held(first), ("a", "2"), "2", beside=True),
        NewStep(held(second), ("nap", None), state="sleep", until=timedelta(hours=1)),
        NewStep(held(second), ("over", None), state="sleep", until=timedelta(0)),
        NewStep(held(second), ("failed", None), "{}", state="failed"),
    ]
    saved = run_sync(conn, save_steps(worker.id, batch))
    assert [one.answer for one in saved] == ["kept", "kept", "kept", "over", "kept"]
    assert saved[2].due is not None
    loaded = run_sync(conn, load_steps(worker.id, held(first)))
    assert loaded == {
        ("a", None): Recorded(None, None, '{"x": null, "y": "\\u00e4"}', None, False),
        ("a", "2"): Recorded(None, True, "2", None, False),
    }
    loaded = run_sync(conn, load_steps(worker.id, held(second)))
    assert isinstance(loaded, dict)
    assert {at: (step.state, step.over) for at, step in loaded.items()} == {
        ("nap", None): ("sleep", False),
        ("over", None): ("sleep", True),
        ("failed", None): ("failed", False),
    }


@pytest.mark.parametrize(
    "change",
    ["lock_token = lock_token + 1", "locked_by = 0", "locked_by = NULL, lock_token = NULL, status = 'pending'"],
)
def test_every_record_names_the_claim(conn: Connection, worker: Worker, change: str) -> None:
    enqueue(conn, job())
    (claimed,) = worker.claim()
    conn.execute(f"UPDATE holdfast.job SET {change}".encode())
    assert save(worker, claimed, "a").answer == "taken_by_another_worker"
    kept = run_sync(conn, save_step(worker.id, held(claimed), ("a", None), "1", beside=False))
    assert kept.answer == "taken_by_another_worker"
    assert run_sync(conn, take_message(worker.id, held(claimed), ("a", None), None, beside=False)).answer == kept.answer
    assert run_sync(conn, load_steps(worker.id, held(claimed))) == kept.answer
    assert steps(conn) == []


def test_a_stale_token_in_the_same_batch_records_nothing(conn: Connection, worker: Worker) -> None:
    enqueue(conn, job())
    (stale,) = worker.claim()
    expire_leases(conn)
    worker.reap(AT_ONCE)
    (claimed,) = worker.claim()
    batch = [NewStep(held(stale), ("stale", None), "1"), NewStep(held(claimed), ("fresh", None), "2")]
    saved = run_sync(conn, save_steps(worker.id, batch))
    assert [one.answer for one in saved] == ["taken_by_another_worker", "kept"]
    assert [name for _, name, *_ in steps(conn)] == ["fresh"]


def test_a_record_in_an_open_transaction_keeps_the_reaper_out(
    conn: Connection, worker: Worker, connect: Callable[..., Connection]
) -> None:
    """FOR KEY SHARE would let it take the row: then two workers would commit."""
    enqueue(conn, job())
    (claimed,) = worker.claim()
    save(worker, claimed, "marks the story")
    handler = connect(autocommit=False)
    assert run_sync(handler, save_step(worker.id, held(claimed), ("a", None), "1", beside=False)).answer == "kept"
    expire_leases_of_others = connect()
    with pytest.raises(psycopg.errors.LockNotAvailable):
        expire_leases_of_others.execute("SELECT FROM holdfast.job FOR NO KEY UPDATE NOWAIT")
    # Other steps of the same story are recorded meanwhile.
    assert save(worker, claimed, "beside").answer == "kept"
    handler.commit()
    assert [name for _, name, *_ in steps(conn)] == ["marks the story", "a", "beside"]


def test_a_story_whose_row_is_locked_holds_up_no_other(
    conn: Connection, worker: Worker, connect: Callable[..., Connection]
) -> None:
    enqueue(conn, job(), job())
    first, second = worker.claim()
    other = connect(autocommit=False)
    other.execute("SELECT FROM holdfast.job WHERE id = %s FOR UPDATE", [first.id])
    batch = [NewStep(held(first), ("a", None), "1"), NewStep(held(second), ("b", None), "2")]
    saved = run_sync(conn, save_steps(worker.id, batch))
    assert [one.answer for one in saved] == ["busy", "kept"]
    other.rollback()
    saved = run_sync(conn, save_steps(worker.id, batch, again=True))
    assert [one.answer for one in saved] == ["kept", "kept"]
    assert len(steps(conn)) == 2


def test_an_answer_that_was_lost_records_nothing_twice(conn: Connection, worker: Worker) -> None:
    enqueue(conn, job())
    (claimed,) = worker.claim()
    nap = NewStep(held(claimed), ("nap", None), state="sleep", until=timedelta(hours=1))
    (saved,) = run_sync(conn, save_steps(worker.id, [nap]))
    assert run_sync(conn, save_steps(worker.id, [nap], again=True)) == [saved]
    assert len(steps(conn)) == 1


def test_an_ended_story_has_its_journal_in_its_row(conn: Connection, worker: Worker) -> None:
    (first, second, third) = enqueue(conn, job(), job(max_attempts=1), job())
    for claimed in worker.claim():
        save(worker, claimed, "a", '{"x": null}')
        send(conn, claimed.id, "m", '{"y": null}', "k")
        outcomes: dict[int, Outcome] = {first: Completed("3"), second: FAILED}
        outcome = outcomes.get(claimed.id)
        if outcome is not None:
            worker.end([claimed], outcome)
    conn.execute("SELECT holdfast.complete_chain(%s)", [third])
    assert statuses(conn) == {first: "completed", second: "failed", third: "completed"}
    assert steps(conn) == []
    assert conn.execute("SELECT FROM holdfast.message").fetchall() == []
    for journal in journals(conn):
        step, message = journal
        assert (step["name"], step["result"]) == ("a", {"x": None})
        assert (message["message"], message["key"], message["result"]) == ("m", "k", {"y": None})


@pytest.mark.parametrize("end", ["delete_job(%s)", "delete_chains(ARRAY[%s])", "cancel_job(%s)"])
def test_a_suspended_story_leaves_nothing_behind(conn: Connection, worker: Worker, end: str) -> None:
    (id_,) = enqueue(conn, job())
    (claimed,) = worker.claim()
    save(worker, claimed, "a")
    send(conn, id_, "m")
    worker.end([claimed], Rescheduled(timedelta(days=1)))
    conn.execute(f"SELECT holdfast.{end}".encode(), [id_])
    assert statuses(conn) == ({id_: "cancelled"} if "cancel" in end else {})
    assert steps(conn) == []
    assert conn.execute("SELECT FROM holdfast.message").fetchall() == []
    assert len(journals(conn)) == len(statuses(conn))


@pytest.mark.parametrize("careful", [False, True])
def test_a_message_to_a_job_that_records_nothing_leaves_with_it(
    conn: Connection, worker: Worker, careful: bool
) -> None:
    waiting, running = enqueue(conn, job(), job())
    assert send(conn, waiting, "m") == "sent"
    claimed = worker.claim()
    assert send(conn, running, "m") == "sent"
    worker.end(claimed, Completed(), careful=careful)
    assert conn.execute("SELECT FROM holdfast.message").fetchall() == []
    assert [[entry["message"] for entry in journal] for journal in journals(conn)] == [["m"], ["m"]]


def test_a_replayed_dead_letter_carries_its_journal(conn: Connection, worker: Worker) -> None:
    (id_,) = enqueue(conn, job())
    (claimed,) = worker.claim()
    save(worker, claimed, "a", '{"x": [1, null]}', beside=True)
    save(worker, claimed, "nap", None, state="sleep", until=timedelta(hours=1))  # type: ignore[arg-type]
    send(conn, id_, "taken", "1", "k")
    run_sync(conn, take_message(worker.id, held(claimed), ("taken", None), None, beside=False))
    send(conn, id_, "waiting", "2", "k")
    rows = f"SELECT {COLUMNS} FROM holdfast.step ORDER BY at".encode()
    messages = b"SELECT name, key, payload, taken, sent_at FROM holdfast.message ORDER BY id"
    before = conn.execute(rows).fetchall(), conn.execute(messages).fetchall()
    worker.end([claimed], FAILED)
    replay = conn.execute("SELECT holdfast.replay_job(%s)", [id_]).fetchone()
    assert replay is not None
    assert (conn.execute(rows).fetchall(), conn.execute(messages).fetchall()) == before
    assert {job_id for job_id, *_ in steps(conn)} == {replay[0]}
    (again,) = worker.claim()
    # It leaves with its journal, and the key of a message is still taken.
    assert send(conn, id_, "taken", "1", "k") == "duplicate"
    worker.end([again], Completed())
    assert [len(journal) for journal in journals(conn)] == [5, 5]


def test_a_story_that_has_begun_is_not_replaced(conn: Connection, worker: Worker) -> None:
    """Its steps belong to its payload. The new job is enqueued beside it, as beside a running one."""
    (first,) = enqueue(conn, job(unique="k"))
    (claimed,) = worker.claim()
    save(worker, claimed, "a")
    worker.end([claimed], Rescheduled(timedelta(days=1)))
    (second,) = enqueue(conn, job(unique=Unique("k", on_conflict="replace")))
    assert second != first
    assert conn.execute("SELECT count(*) FROM holdfast.job").fetchone() == (2,)


@pytest.mark.parametrize("sent", [False, True])
def test_an_expiry_is_fulfilled_by_the_first_start(conn: Connection, worker: Worker, sent: bool) -> None:
    (id_,) = enqueue(conn, job(expires=3600))
    if sent:
        send(conn, id_, "m")
    (claimed,) = worker.claim()
    save(worker, claimed, "a")
    assert conn.execute("SELECT expires_at FROM holdfast.job").fetchone() == (None,)


def test_an_order_key_stays_taken_while_a_story_sleeps(conn: Connection, worker: Worker) -> None:
    first, second = enqueue(conn, job(order_key="k"), job(order_key="k"))
    (claimed,) = worker.claim()
    assert claimed.id == first
    save(worker, claimed, "a")
    worker.end([claimed], Rescheduled(timedelta(days=1)))
    assert worker.claim() == []
    conn.execute("UPDATE holdfast.job SET available_at = now(), later = NULL WHERE id = %s", [first])
    (claimed,) = worker.claim()
    worker.end([claimed], Completed())
    assert [found.id for found in worker.claim()] == [second]


def test_a_cancelled_story_does_not_sleep(conn: Connection, worker: Worker) -> None:
    (id_,) = enqueue(conn, job())
    (claimed,) = worker.claim()
    save(worker, claimed, "a")
    conn.execute("SELECT holdfast.cancel_job(%s)", [id_])
    worker.end([claimed], Rescheduled(timedelta(days=1)))
    assert statuses(conn) == {id_: "cancelled"}
    assert len(journals(conn)[0]) == 1


def wal(conn: Connection, act: Callable[[], object]) -> int:
    """Return the bytes that `act` writes, without full-page writes."""
    conn.execute("CHECKPOINT")
    act()  # the first write to a page after a checkpoint
    before = conn.execute("SELECT pg_current_wal_insert_lsn()").fetchone()
    act()
    row = conn.execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), %s)", before).fetchone()
    assert row is not None
    return int(row[0])


def test_the_bytes_of_a_step(conn: Connection, worker: Worker) -> None:
    """A later step at most 350 bytes of WAL, the first 500; measured 250 and 370."""
    enqueue(conn, *[job() for _ in range(4)])
    claimed = worker.claim()
    names = iter(range(1000))
    first = wal(conn, lambda: save(worker, claimed[next(names)], "charge", '{"id": "ch-1"}'))
    later = wal(conn, lambda: save(worker, claimed[0], f"charge {next(names)}", '{"id": "ch-1"}'))
    assert first <= 500
    assert later <= 350


def test_the_bytes_of_a_whole_story(conn: Connection, worker: Worker) -> None:
    """From enqueue to history, at most 600 bytes of WAL for each of ten steps; measured 526."""

    def run() -> None:
        enqueue(conn, job())
        (claimed,) = worker.claim()
        for n in range(10):
            save(worker, claimed, f"charge {n}", '{"id": "ch-1"}')
        worker.end([claimed], Completed(json.dumps("done")))

    run()
    spent = min(wal(conn, run) for _ in range(3))
    assert spent <= 6_000, f"{spent} bytes"


def test_jobs_without_steps_read_and_lock_nothing_of_stories(conn: Connection, worker: Worker) -> None:
    """Counted by the server: no scan of the tables, no row, not even a lock while they are settled one by one."""

    def scans() -> object:
        conn.execute("SELECT pg_stat_force_next_flush()")
        return conn.execute(
            "SELECT relname, seq_scan, idx_scan, n_tup_ins, n_tup_upd, n_tup_del FROM pg_stat_user_tables "
            "WHERE relname IN ('step', 'message') ORDER BY 1"
        ).fetchall()

    before = scans()
    enqueue(conn, *[job(order_key=str(n) if n % 2 else None) for n in range(20)])
    claimed = worker.claim()
    worker.end(claimed[:5], Completed())
    worker.end(claimed[5:10], Completed(json.dumps("x")), careful=True)
    worker.end(claimed[10:15], Rescheduled(timedelta(days=1)))
    with conn.transaction():
        worker.end(claimed[15:], FAILED)
        ours = "SELECT relation::regclass::text FROM pg_locks WHERE relation IS NOT NULL AND pid = pg_backend_pid()"
        assert {name for (name,) in conn.execute(ours)}.isdisjoint({"holdfast.step", "holdfast.message"})
    assert scans() == before
