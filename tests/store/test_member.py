"""Jobs of a group, and the one that runs after them."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast._drivers import run_sync
from holdfast._model.errors import ChainAwaited, InvalidJob
from holdfast._model.outcome import Completed, Outcome
from holdfast._store.chain import delete_chains, delete_groups, read_blockers
from holdfast._store.enqueue import enqueue_group
from holdfast._store.inspect import delete_job
from holdfast._store.search import cancel_job, list_blocked, replay_job
from tests.kit.workers import CANCELLED, FAILED, RETRIED, Worker, enqueue, job, number

if TYPE_CHECKING:
    from tests.kit.workers import Connect


def group(worker: Worker, members: int, **options: Any) -> int:
    """Enqueue so many jobs, and one that runs after them; return that one."""
    return run_sync(worker.conn, enqueue_group([job()] * members, job("last", **options))).id


def following(after: int) -> Completed:
    return Completed(next=job(after=[after]).as_json())


def progress(worker: Worker, last: int) -> Any:
    return number(
        worker.conn, "SELECT holdfast.group_progress(id, blockers_left) FROM holdfast.job WHERE id = %s", last
    )


@pytest.fixture
def worker(connect: Connect) -> Worker:
    return Worker(connect(), "k", "last")


def test_the_last_reads_all_results_in_order(worker: Worker) -> None:
    last = group(worker, 5)
    members = worker.claim()
    random.Random(7).shuffle(members)
    worker.end(members[:2], Completed('"early"'))
    worker.end(members[2:3], Completed())
    assert (worker.claim(), progress(worker, last)) == ([], [3, 0, 2])
    worker.end(members[3:], Completed('"late"'))
    [claimed] = worker.claim()
    assert (claimed.id, claimed.has_blockers, claimed.blocker_failed) == (last, True, False)
    blockers = run_sync(worker.conn, read_blockers([last]))[last]
    assert [blocker.chain_id for blocker in blockers] == sorted(member.id for member in members)
    results = {member.id: '"early"' for member in members[:2]} | {member.id: '"late"' for member in members[3:]}
    assert [blocker.result for blocker in blockers] == [results.get(blocker.chain_id) for blocker in blockers]


@pytest.mark.parametrize("outcome", [FAILED, CANCELLED])
def test_a_member_that_does_not_complete_releases_the_last_to_fail(worker: Worker, outcome: Outcome) -> None:
    last = group(worker, 3)
    first, *others = worker.claim()
    worker.end([first], outcome)
    [claimed] = worker.claim()
    assert (claimed.id, claimed.blocker_failed) == (last, True)
    worker.end(others)
    assert number(worker.conn, "SELECT blockers_left FROM holdfast.job") == 0
    worker.end([claimed], FAILED)
    assert number(worker.conn, "SELECT count(*) FROM holdfast.job") == 0


def test_with_run_the_last_waits_for_all(worker: Worker) -> None:
    last = group(worker, 3, if_blocker_fails="run")
    first, second, third = worker.claim()
    worker.end([second], FAILED)
    worker.end([first])
    assert (worker.claim(), progress(worker, last)) == ([], [1, 1, 1])
    worker.end([third], CANCELLED)
    [claimed] = worker.claim()
    assert (claimed.id, claimed.blocker_failed) == (last, False)
    blockers = run_sync(worker.conn, read_blockers([last]))[last]
    assert [(blocker.status, blocker.error_code) for blocker in blockers] == [
        ("completed", None), ("failed", "Broken"), ("cancelled", None),
    ]  # fmt: skip


def test_a_member_is_its_whole_chain(worker: Worker) -> None:
    last = group(worker, 2)
    [other] = enqueue(worker.conn, job())
    first, second, plain = worker.claim()
    assert plain.id == other
    worker.end([first], Completed(next=job().as_json()))
    worker.end([second], Completed("2"))
    worker.end([plain], RETRIED)
    assert progress(worker, last) == [1, 0, 1]
    follower, again = sorted(worker.claim(), key=lambda found: found.kind == "k" and found.id == other)
    assert again.id == other
    worker.end([follower], Completed("1"))
    assert [found.id for found in worker.claim()] == [last]
    assert [blocker.result for blocker in run_sync(worker.conn, read_blockers([last]))[last]] == ["1", "2"]


def test_members_that_are_cancelled_or_deleted_count_as_failed(worker: Worker) -> None:
    last = group(worker, 3, if_blocker_fails="run")
    first, second, third = [
        id_ for (id_,) in worker.conn.execute("SELECT id FROM holdfast.job WHERE kind = 'k' ORDER BY id").fetchall()
    ]
    assert run_sync(worker.conn, cancel_job(first)) == "cancelled"
    assert run_sync(worker.conn, delete_job(second)) == "deleted"
    assert progress(worker, last) == [0, 2, 1]
    with pytest.raises(ChainAwaited) as caught:
        run_sync(worker.conn, delete_chains([third]))
    assert caught.value.waiters == (last,)
    assert [found.id for _, found in run_sync(worker.conn, list_blocked(third))] == [last]
    assert run_sync(worker.conn, delete_chains([third], cascade=True)) == [last, third]
    assert number(worker.conn, "SELECT count(*) FROM holdfast.job") == 0


def test_rows_of_a_group_go_when_its_last_has_left(worker: Worker) -> None:
    kept, gone = group(worker, 2), group(worker, 2)
    assert run_sync(worker.conn, delete_job(gone)) == "deleted"
    worker.end(worker.claim()[1:])
    assert run_sync(worker.conn, delete_groups()).rows == 1
    for table in ("group_part", "group_entry"):
        assert number(worker.conn, f"SELECT array_agg(DISTINCT group_id) FROM holdfast.{table}") == [kept]
    assert progress(worker, kept) == [1, 0, 1]


def test_a_last_that_failed_reads_all_results_again_when_it_is_replayed(worker: Worker) -> None:
    last = group(worker, 2)
    worker.end(worker.claim(), Completed("7"))
    worker.end(worker.claim(), FAILED)
    run_sync(worker.conn, delete_groups())
    replay = run_sync(worker.conn, replay_job(last))
    assert replay is not None
    assert [found.id for found in worker.claim()] == [replay]
    assert [blocker.result for blocker in run_sync(worker.conn, read_blockers([replay]))[replay]] == ["7", "7"]


def test_a_member_that_would_wait_for_its_last_is_refused(worker: Worker) -> None:
    last = group(worker, 1)
    claimed = worker.claim()
    with pytest.raises(InvalidJob, match="would wait for itself"):
        worker.end(claimed, following(last))
    worker.end(claimed)
    assert [found.id for found in worker.claim()] == [last]


def test_a_finish_waits_for_no_other_that_counts_in_the_same_part(connect: Connect, worker: Worker) -> None:
    last = group(worker, 2)
    first, second = worker.claim()
    elsewhere = Worker(connect(), "k")
    with worker.conn.transaction():
        worker.end([first])
        elsewhere.id = worker.id
        assert elsewhere.end([second], FAILED) == {second.id: "busy"}
    assert elsewhere.end([second], FAILED) == {second.id: "failed"}
    assert [found.id for found in worker.claim()] == [last]


def test_a_part_has_at_most_256_members_of_one_window(worker: Worker) -> None:
    last = group(worker, 5000)
    parts = worker.conn.execute("SELECT jobs FROM holdfast.group_part WHERE group_id = %s", [last]).fetchall()
    assert sum(jobs for (jobs,) in parts) == 5000
    assert max(jobs for (jobs,) in parts) <= 256
    assert len(parts) <= 5000 // 256 + 16
    windows = worker.conn.execute(
        "SELECT count(DISTINCT shard / 8) FROM holdfast.job WHERE group_id = %s GROUP BY holdfast.part_of(id)", [last]
    ).fetchall()
    assert set(windows) == {(1,)}


def test_workers_that_finish_members_at_the_same_time_release_the_last_once(connect: Connect, worker: Worker) -> None:
    last = group(worker, 400)
    crew = [Worker(connect(), "k") for _ in range(4)]
    held = [one.claim(100) for one in crew]

    def finish(place: int) -> None:
        draw, one, mine = random.Random(place), crew[place], held[place]
        draw.shuffle(mine)
        while mine:
            some = mine[: draw.randint(1, 5)]
            try:
                ended = one.end(some, Completed(f"{place}"), careful=draw.random() < 0.3)
            except psycopg.errors.LockNotAvailable:
                continue
            mine[: len(some)] = [found for found in some if ended.get(found.id) == "busy"]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(finish, range(4)))
    assert [found.id for found in worker.claim()] == [last]
    blockers = run_sync(worker.conn, read_blockers([last]))[last]
    assert {blocker.status for blocker in blockers} == {"completed"}
    assert sorted(blocker.result or "" for blocker in blockers) == sorted(str(n % 4) for n in range(400))
