from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from holdfast._app.app import application_of
from holdfast._drivers import run_sync
from holdfast._engine.once import run_tick
from holdfast._model.settings import Settings
from holdfast._ops import jobs as jobs_module
from holdfast._ops import service as desk_module
from holdfast._ops.caller import Person, RequestRefused, Role
from holdfast._ops.requests import (
    Before,
    BulkActionControl,
    ChainSearch,
    DeadLetterAction,
    DeadLetterSearch,
    JobAction,
    JobFilter,
    JobSearch,
    QueueAction,
    QueueControl,
    RunnerAction,
    SubscriptionAction,
)
from holdfast._ops.responses.job import Done, JobActionResult
from holdfast._ops.service import Service
from holdfast._store.schedule import record_run, start_run
from holdfast._store.search import LOOKS, replay_job
from holdfast._store.subscription import subscribe
from holdfast._store.worker import register_worker
from tests.kit.access import PATIENT
from tests.kit.shop import enqueue as enqueue_in_shop
from tests.kit.shop import make_app
from tests.kit.workers import number

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import psycopg

    from holdfast._store.bulk_action_line import BulkAction
    from tests.kit.workers import Connect

ANN = Person("ann", Role.OPERATOR)


@pytest.fixture
async def service(database: str) -> AsyncIterator[Service]:
    async with Service(database, timeout=PATIENT) as service:
        yield service


def enqueue(conn: psycopg.Connection[Any], count: int = 1, **job: Any) -> list[int]:
    text = json.dumps([{"kind": "mail", **job}] * count)
    return [row[0] for row in conn.execute("SELECT id FROM holdfast.enqueue_jobs(%s)", [text])]


def fail(conn: psycopg.Connection[Any], ids: list[int], code: str = "Boom") -> None:
    """Make dead letters of them."""
    conn.execute(
        """
        UPDATE holdfast.job SET status = 'processing', lock_token = 1, locked_by = 1, locked_until = now(), attempt = 1,
            claimed_at = now()
        WHERE id = ANY (%s)
        """,
        [ids],
    )
    conn.execute(
        """
        SELECT count(*) FROM holdfast.settle_jobs(ARRAY(
            SELECT ROW (id, 1, 1, 'failed', NULL, NULL, %s::text, 'it broke', NULL, NULL, NULL, NULL, NULL,
                NULL, NULL, NULL)::holdfast.ending
            FROM unnest(%s::bigint[]) AS id))
        """,
        [code, ids],
    )


async def carried_out(service: Service, result: JobActionResult) -> BulkAction:
    """Carry an action on to its end, as workers do."""
    assert result.bulk is not None
    bulk = result.bulk
    for _ in range(100):
        if bulk.ended_at is not None:
            return bulk
        bulk = await service.carry_on(bulk.id)
    raise AssertionError("it did not end")


def complete(conn: psycopg.Connection[Any], ids: list[int]) -> None:
    conn.execute(
        """
        UPDATE holdfast.job SET status = 'processing', lock_token = 1, locked_by = 1, locked_until = now(), attempt = 1,
            claimed_at = now()
        WHERE id = ANY (%s)
        """,
        [ids],
    )
    conn.execute("SELECT count(*) FROM holdfast.complete_jobs(1, %s::bigint[], '{1}', '{}')", [ids])


async def pages(service: Service, **search: Any) -> list[int]:
    """Return the ids of every page, and see that each page is within its bound."""
    found: list[int] = []
    before: int | None = None
    while True:
        page = await service.jobs(JobSearch(**search, before=before))
        assert len(page.items) <= search.get("limit", 50)
        found += [job.id for job in page.items]
        if page.next is None:
            assert page.looked.complete
            return found
        before = page.next


# --- searching


async def test_jobs_of_every_home_come_in_one_order(service: Service, conn: psycopg.Connection[Any]) -> None:
    ids = enqueue(conn, 30)
    fail(conn, ids[::3])
    complete(conn, ids[1::3])
    assert await pages(service, limit=7) == ids[::-1]
    assert await pages(service, limit=7, status="failed") == ids[::3][::-1]
    assert await pages(service, limit=7, status="completed") == ids[1::3][::-1]
    assert await pages(service, limit=7, status="pending") == ids[2::3][::-1]


@pytest.mark.parametrize("limit", [1, 5, 200])
async def test_nothing_is_shown_twice_or_left_out_where_a_look_ends(
    service: Service, conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr("holdfast._store.search.LOOKS", (3, 4, 5))
    ids = enqueue(conn, 60)
    fail(conn, ids[5:25])
    complete(conn, ids[20:40:2])
    wanted = {row[0] for row in conn.execute("SELECT id FROM holdfast.job")} | set(ids)
    assert await pages(service, limit=limit) == sorted(wanted, reverse=True)


async def test_every_filter_narrows(service: Service, conn: psycopg.Connection[Any]) -> None:
    (kind,) = enqueue(conn, kind="pdf")
    (queue,) = enqueue(conn, queue="slow")
    (order,) = enqueue(conn, order_key="k1")
    (unique,) = enqueue(conn, unique_key="u1")
    (text,) = enqueue(conn, payload={"note": "50% OFF_now"})
    (failed,) = enqueue(conn)
    fail(conn, [failed], "Odd")
    assert await pages(service, kind="pdf") == [kind]
    assert await pages(service, queue="slow") == [queue]
    assert await pages(service, order_key="k1") == [order]
    assert await pages(service, unique_key="u1") == [unique]
    assert await pages(service, error_code="Odd") == [failed]
    assert await pages(service, text="50% off_NOW") == [text]
    assert await pages(service, text="50_ off") == []


async def test_times_narrow_by_creation(service: Service, conn: psycopg.Connection[Any]) -> None:
    ids = enqueue(conn, 4)
    conn.execute("UPDATE holdfast.job SET created_at = now() - (5 - id) * interval '1 hour'")
    now = datetime.now(UTC)
    assert await pages(service, created_from=now - timedelta(hours=2.5)) == ids[2:][::-1]
    assert await pages(service, created_until=now - timedelta(hours=2.5)) == ids[:2][::-1]


async def test_landmarks_spare_the_look_at_what_is_younger(service: Service, conn: psycopg.Connection[Any]) -> None:
    old = enqueue(conn, 5)
    conn.execute("UPDATE holdfast.job SET created_at = now() - interval '5 hours'")
    conn.execute("INSERT INTO holdfast.landmark VALUES (now() - interval '3 hours', %s)", [old[-1]])
    enqueue(conn, 2_000)
    page = await service.jobs(JobSearch(created_until=datetime.now(UTC) - timedelta(hours=4.5)))
    assert [job.id for job in page.items] == old[::-1]
    assert page.looked.jobs == len(old)


async def test_a_search_says_how_far_it_looked_and_goes_on_from_there(
    service: Service, conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast._store.search.LOOKS", (10, 20))
    (rare,) = enqueue(conn, kind="rare")
    enqueue(conn, 50)
    page = await service.jobs(JobSearch(kind="rare"))
    assert (page.items, page.looked.jobs, page.looked.complete) == ([], 30, False)
    assert page.looked.back_to is not None
    page = await service.jobs(JobSearch(kind="rare", before=page.next))
    assert ([job.id for job in page.items], page.next) == ([rare], None)


def test_no_more_than_fifty_thousand_are_looked_at() -> None:
    assert sum(LOOKS) == 50_000


# --- the story of a job


async def test_a_story_has_attempts_worker_and_replays_and_hides_secrets(
    service: Service, conn: psycopg.Connection[Any]
) -> None:
    run_sync(conn, register_worker("w1", queues=["default"], kinds=["mail"]))
    (job,) = enqueue(conn, payload={"to": "a@b.c", "password": "hush"}, headers={"traceparent": "00-a-b-01"})
    fail(conn, [job])
    replay = run_sync(conn, replay_job(job))
    story = await service.job(job)
    assert (story.status, story.error_code, story.error, story.worker_name) == ("failed", "Boom", "it broke", "w1")
    assert story.payload == {"to": "a@b.c", "password": "[redacted]"}
    assert (story.redacted, story.trace, story.replays) == (True, "00-a-b-01", [replay])
    assert [(attempt.outcome, attempt.worker_name) for attempt in story.attempts] == [("failed", "w1")]
    assert replay is not None
    assert (await service.job(replay)).replay_of == job
    assert "hush" not in story.model_dump_json()


async def test_a_job_without_a_limit_of_attempts(service: Service, conn: psycopg.Connection[Any]) -> None:
    (job,) = enqueue(conn, max_attempts=-1)
    assert (await service.job(job)).max_attempts is None
    assert [line.max_attempts for line in (await service.jobs(JobSearch())).items] == [None]


async def test_a_story_has_its_steps_without_their_results(service: Service, conn: psycopg.Connection[Any]) -> None:
    (job,) = enqueue(conn)
    conn.execute("UPDATE holdfast.job SET steps = true")
    conn.execute(
        "INSERT INTO holdfast.step (job_id, at, name, key, result) VALUES (%s, now(), 'charge', '7', '\"hush\"')", [job]
    )
    conn.execute("INSERT INTO holdfast.message (job_id, sent_at, name) VALUES (%s, now(), 'approval')", [job])
    live = await service.job(job)
    conn.execute("SELECT holdfast.cancel_job(%s)", [job])
    ended = await service.job(job)
    for story in (live, ended):
        lines = [(step.name, step.key, step.state) for step in story.steps]
        assert sorted(lines) == [("approval", None, "sent"), ("charge", "7", "done")]
        assert "hush" not in story.model_dump_json()


async def test_a_job_that_is_not_there_is_not_found(service: Service) -> None:
    with pytest.raises(RequestRefused) as refused:
        await service.job(7)
    assert (refused.value.status, refused.value.code) == (404, "not_found")


async def test_a_chain_is_drawn_with_what_it_waits_for_and_who_waits_for_it(
    service: Service, conn: psycopg.Connection[Any]
) -> None:
    (first,) = enqueue(conn)
    (second,) = enqueue(conn, kind="after", blockers=[first])
    graph = await service.chain(second)
    assert {(edge.source, edge.target, edge.kind) for edge in graph.edges} == {(first, second, "blocks")}
    graph = await service.chain(first)
    assert {(edge.source, edge.target, edge.kind) for edge in graph.edges} == {(first, second, "blocks")}
    listed = await service.chains(ChainSearch())
    assert {(chain.id, chain.status) for chain in listed.items} == {(first, "pending"), (second, "blocked")}


# --- acting


async def test_a_preview_changes_nothing(service: Service, conn: psycopg.Connection[Any]) -> None:
    enqueue(conn, 5)
    result = await service.act_on_jobs(JobAction(action="cancel", filter=JobFilter(kind="mail"), limit=3), ANN)
    assert (result.preview, result.matched, result.capped, result.done, len(result.sample)) == (True, 3, True, 0, 3)
    assert number(conn, "SELECT count(*) FROM holdfast.job") == 5
    assert (await service.audit(Before())).items == []


async def test_an_action_by_a_filter_ends_at_its_limit_and_is_in_the_audit(
    service: Service, conn: psycopg.Connection[Any]
) -> None:
    ids = enqueue(conn, 250)
    action = JobAction(action="cancel", filter=JobFilter(kind="mail"), limit=220, preview=False)
    result = await carried_out(service, await service.act_on_jobs(action, ANN))
    assert (result.state, result.done, result.expected) == ("completed", 220, 220)
    [entry] = (await service.audit(Before())).items
    assert (entry.who, entry.role, entry.action, entry.jobs) == ("ann", Role.OPERATOR, "jobs.cancel", 220)
    assert entry.detail == {"filter": {"kind": "mail"}, "limit": 220, "bulk_action": str(result.id)}
    cancelled = conn.execute("SELECT id FROM holdfast.job_history ORDER BY id").fetchall()
    assert [id_ for (id_,) in cancelled] == ids[:220], "the oldest first"


async def test_an_action_with_a_rate_is_left_to_the_workers(service: Service, conn: psycopg.Connection[Any]) -> None:
    enqueue(conn, 40)
    action = JobAction(action="cancel", filter=JobFilter(kind="mail"), rate="60/min", preview=False)
    result = await service.act_on_jobs(action, ANN)
    assert result.bulk is not None
    assert (result.matched, result.done, result.bulk.state, result.bulk.rate) == (40, 1, "running", 1.0)
    stop, resume = (BulkActionControl(action=action) for action in ("stop", "resume"))
    stopped = await service.control_bulk_action(result.bulk.id, stop, ANN)
    assert (stopped.state, stopped.stopped_by) == ("stopped", "ann")
    with pytest.raises(RequestRefused, match="is stopped, not running"):
        await service.control_bulk_action(result.bulk.id, stop, ANN)
    assert (await service.control_bulk_action(result.bulk.id, resume, ANN)).state == "running"
    assert [line.id for line in (await service.bulk_actions(10)).items] == [result.bulk.id]
    actions = [entry.action for entry in (await service.audit(Before())).items]
    assert actions == ["bulk_action.resume", "bulk_action.stop", "jobs.cancel"]
    with pytest.raises(RequestRefused, match="There is no bulk action 99"):
        await service.bulk_action(99)


async def test_a_preview_counts_up_to_a_bound(
    service: Service, conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_module, "LOOKS", (5, 15))
    enqueue(conn, 60, delay_ms=3_600_000)
    preview = await service.act_on_jobs(JobAction(action="delete", filter=JobFilter(kind="mail")), ANN)
    # Blocked and pending jobs are in one table, and each status is counted for itself.
    assert (preview.matched, preview.capped, preview.looked.complete, len(preview.sample)) == (20, True, False, 20)
    action = JobAction(action="delete", filter=JobFilter(kind="mail"), preview=False)
    ended = await carried_out(service, await service.act_on_jobs(action, ANN))
    assert (ended.expected, ended.done, ended.progress) == (None, 60, 1.0)


async def test_dead_letters_are_grouped_and_retried_once(service: Service, conn: psycopg.Connection[Any]) -> None:
    fail(conn, enqueue(conn, 5), "Boom")
    fail(conn, enqueue(conn, 2, kind="pdf"), "Ink")
    groups = (await service.dead_letters(DeadLetterSearch())).items
    assert [(group.kind, group.error_code, group.error, group.jobs) for group in groups] == [
        ("mail", "Boom", "it broke", 5),
        ("pdf", "Ink", "it broke", 2),
    ]
    retry = JobAction(action="retry", filter=JobFilter(kind="mail", error_code="Boom"), preview=False)
    assert (await service.act_on_jobs(retry, ANN)).done == 5
    assert (await service.act_on_jobs(retry, ANN)).done == 0
    assert [group.kind for group in (await service.dead_letters(DeadLetterSearch())).items] == ["pdf"]
    assert number(conn, "SELECT count(*) FROM holdfast.job WHERE replay_of IS NOT NULL") == 5


async def test_a_dismissed_group_is_shown_again_once_a_job_of_it_fails(
    service: Service, conn: psycopg.Connection[Any]
) -> None:
    fail(conn, enqueue(conn, 2), "Boom")
    fail(conn, enqueue(conn), "Bang")

    async def shown(*, dismissed: bool = False) -> dict[str, tuple[int, str | None]]:
        groups = (await service.dead_letters(DeadLetterSearch(dismissed=dismissed))).items
        return {group.error_code: (group.jobs, group.dismissed_by) for group in groups}

    [boom] = [one for one in (await service.dead_letters(DeadLetterSearch())).items if one.error_code == "Boom"]
    group: dict[str, Any] = {"kind": boom.kind, "queue": boom.queue, "error_code": "Boom"}
    dismiss = DeadLetterAction(action="dismiss", last_at=boom.last_at, **group)
    restore = DeadLetterAction(action="restore", **group)
    await service.act_on_dead_letters(dismiss, ANN)
    assert await shown() == {"Bang": (1, None)}
    assert await shown(dismissed=True) == {"Boom": (2, "ann"), "Bang": (1, None)}
    await service.act_on_dead_letters(restore, ANN)
    assert (await shown()).keys() == {"Boom", "Bang"}
    with pytest.raises(RequestRefused, match="is not dismissed"):
        await service.act_on_dead_letters(restore, ANN)
    await service.act_on_dead_letters(dismiss, ANN)
    fail(conn, enqueue(conn), "Boom")
    assert await shown() == {"Boom": (3, None), "Bang": (1, None)}
    entries = (await service.audit(Before())).items
    assert [entry.action for entry in entries] == [f"dead_letters.{one}" for one in ("dismiss", "restore", "dismiss")]


async def test_what_cannot_be_acted_on_is_refused_with_the_reason_and_holds_up_no_other(
    service: Service, conn: psycopg.Connection[Any]
) -> None:
    done, live = enqueue(conn, 2)
    (held,) = enqueue(conn, unique_key="u")
    fail(conn, [held])
    enqueue(conn, unique_key="u")
    complete(conn, [done])
    result = await service.act_on_jobs(JobAction(action="cancel", ids=[done, live, 999], preview=False), ANN)
    assert (result.done, {job.id for job in result.refused}) == (1, {done, 999})
    result = await service.act_on_jobs(JobAction(action="retry", ids=[held, done], preview=False), ANN)
    assert [job.why for job in result.refused] == [
        "it is no dead letter, or its history has aged out",
        "another live job has its unique key: 4",
    ]


async def test_a_waiting_job_is_rescheduled_and_never_into_the_past(
    service: Service, conn: psycopg.Connection[Any]
) -> None:
    (job,) = enqueue(conn, delay_ms=3_600_000)
    later = datetime.now(UTC) + timedelta(days=1)
    await service.act_on_jobs(JobAction(action="reschedule", ids=[job], at=later, preview=False), ANN)
    assert (await service.job(job)).available_at == later
    past = datetime(2020, 1, 1, tzinfo=UTC)
    await service.act_on_jobs(JobAction(action="reschedule", ids=[job], at=past, preview=False), ANN)
    assert number(conn, "SELECT count(*) FROM holdfast.job WHERE available_at > now() - interval '1 minute'") == 1


async def test_an_action_on_the_wrong_status_is_refused(service: Service) -> None:
    with pytest.raises(RequestRefused, match="retry is for jobs that are failed"):
        await service.act_on_jobs(JobAction(action="retry", filter=JobFilter(status="pending")), ANN)


# --- the fleet


async def test_the_overview_counts_and_says_what_is_wrong(service: Service, conn: psycopg.Connection[Any]) -> None:
    enqueue(conn, 3)
    seen = await service.overview()
    assert (seen.depth.pending, seen.depth.due, seen.workers, seen.ok) == (3, 3, 0, False)
    assert [problem.code for problem in seen.problems] == ["no_worker"], "what follows from it is not said"
    assert [wait.code for wait in (await service.job(1)).waits] == ["unserved"]
    assert len(seen.minutes) == 60
    run_sync(conn, register_worker("w", queues=["default"], kinds=["mail"]))
    complete(conn, [1, 2])
    fail(conn, [3])
    seen = await service.overview(5)
    assert (seen.completed, seen.failed, seen.workers, seen.ok, len(seen.minutes)) == (2, 1, 1, True, 5)
    assert sum(minute.completed for minute in seen.minutes) == 2
    assert seen.waiting.p50 is not None


async def test_stats_have_the_numbers_of_the_seed(service: Service, conn: psycopg.Connection[Any]) -> None:
    ids = enqueue(conn, 5)
    complete(conn, ids[:2])
    fail(conn, ids[2:3])
    stats = await service.stats_queue()
    assert stats.model_dump(exclude={"oldest_pending_age_seconds"}) == {
        "total": 5, "due_now": 2, "stuck_processing": 0, "pending": 2, "processing": 0, "sent": 2, "failed": 1,
    }  # fmt: skip


async def test_a_preview_of_a_pause_pauses_nothing(service: Service, conn: psycopg.Connection[Any]) -> None:
    enqueue(conn, queue="slow")
    done = await service.act_on_queue("slow", QueueAction(action="pause", preview=True), ANN)
    assert isinstance(done, Done)
    assert done.message.startswith("Would be done: slow: ")
    assert number(conn, "SELECT count(*) FROM holdfast.queue") == 0
    assert (await service.audit(Before())).items == []
    with pytest.raises(RequestRefused, match="No queue is named slwo"):
        await service.act_on_queue("slwo", QueueAction(action="pause"), ANN)
    with pytest.raises(RequestRefused, match="No queue is named slwo"):
        await service.set_queue("slwo", QueueControl(concurrency=2, lease_ms=None, rate=None), ANN)


async def test_a_queue_is_paused_set_and_drained(service: Service, conn: psycopg.Connection[Any]) -> None:
    enqueue(conn, 4, queue="slow")
    await service.act_on_queue("slow", QueueAction(action="pause"), ANN)
    await service.set_queue("slow", QueueControl(concurrency=2, lease_ms=5_000, rate=1.5), ANN)
    (queue,) = (await service.queues()).items
    assert (queue.name, queue.paused, queue.concurrency, queue.lease_ms, queue.rate) == ("slow", True, 2, 5_000, 1.5)
    assert queue.depth.pending == 4
    await service.act_on_queue("slow", QueueAction(action="resume"), ANN)
    await service.act_on_queue("slow", QueueAction(action="cancel_waiting", preview=False), ANN)
    assert number(conn, "SELECT count(*) FROM holdfast.job") == 0
    actions = [entry.action for entry in (await service.audit(Before())).items]
    assert actions == ["jobs.cancel", "queue.resume", "queue.set", "queue.pause"]


async def test_a_runner_is_shown_as_running_while_its_worker_lives(
    service: Service, conn: psycopg.Connection[Any]
) -> None:
    worker = run_sync(conn, register_worker("here", queues=[], kinds=[]))
    conn.execute(
        "INSERT INTO holdfast.schedule (name, what, schedule, next_at, started_at, locked_by, locked_until) VALUES "
        "('dead', 'runner', 'every 60s', now(), now(), 99, now() - interval '1 s'), "
        "('tidy', 'runner', 'every 60s', now(), now(), %s, now() + interval '1 min')",
        [worker],
    )
    run_sync(conn, record_run(run_sync(conn, start_run()), "loop", None, worker=worker, counts={}))
    found = {line.name: line for line in (await service.runners()).items}
    assert {name: line.running_on for name, line in found.items()} == {"dead": None, "loop": worker, "tidy": worker}
    assert [name for name, line in found.items() if line.running_since is not None] == ["loop", "tidy"]
    assert found["loop"].last is None
    conn.execute("UPDATE holdfast.worker SET stopped_at = now()")
    assert [line.running_since for line in (await service.runners()).items] == [None, None]


async def test_the_schedule_of_a_job_shows_when_it_last_enqueued_one(
    service: Service, conn: psycopg.Connection[Any]
) -> None:
    conn.execute(
        "INSERT INTO holdfast.schedule (name, what, schedule, job, last_at) VALUES "
        "('bills', 'job', 'every 60s', '{}', '2026-01-01 00:00+00')"
    )
    line = next(line for line in (await service.runners()).items if line.name == "bills")
    assert (line.what, line.last) == ("job", None)
    assert line.last_at == datetime(2026, 1, 1, tzinfo=UTC)


async def test_a_schedule_is_run_and_paused_and_one_that_is_not_there_is_not_found(
    service: Service, conn: psycopg.Connection[Any]
) -> None:
    conn.execute(
        "INSERT INTO holdfast.schedule (name, what, schedule, next_at) VALUES ('tidy', 'runner', 'every 60s', now())"
    )
    (runner,) = (await service.runners()).items
    assert (runner.name, runner.paused, len(runner.next_at)) == ("tidy", False, 3)
    await service.act_on_runner("tidy", RunnerAction(action="run"), ANN)
    await service.act_on_runner("tidy", RunnerAction(action="pause"), ANN)
    (runner,) = (await service.runners()).items
    assert (runner.triggered, runner.paused, runner.next_at) == (True, True, [])
    with pytest.raises(RequestRefused, match="No schedule"):
        await service.act_on_runner("other", RunnerAction(action="run"), ANN)
    assert [entry.target for entry in (await service.audit(Before())).items] == ["tidy", "tidy"]


async def test_a_schedule_that_was_added_is_edited_and_removed(service: Service, conn: psycopg.Connection[Any]) -> None:
    conn.execute(
        "INSERT INTO holdfast.schedule (name, what, schedule, job, declared) VALUES "
        "('added', 'job', 'every 60s', %(job)s, NULL), ('coded', 'job', 'every 60s', %(large)s, 'every 60s {}')",
        {
            "job": '{"kind": "report.send", "payload": {"to": "Ann", "token": "hush"}}',
            "large": json.dumps({"kind": "report.send", "payload": "x" * 2000}),
        },
    )
    run_sync(conn, register_worker("w", queues=["default"], kinds={}))
    conn.execute("UPDATE holdfast.worker SET schedules = '{coded}', heartbeat_at = now()")
    added, coded = (await service.runners()).items
    assert (added.added, added.kind, added.payload) == (True, "report.send", {"to": "Ann", "token": "[redacted]"})
    assert (coded.added, coded.kind, coded.payload) == (False, "report.send", None)
    weekly = "0 9 * * 1 Asia/Tokyo"
    edit, remove = RunnerAction(action="edit", schedule=weekly), RunnerAction(action="remove")
    await service.act_on_runner("added", edit, ANN, if_match=added.etag)
    for overtaken in (edit, remove):
        with pytest.raises(RequestRefused, match="has changed the schedule added"):
            await service.act_on_runner("added", overtaken, ANN, if_match=added.etag)
    assert {line.name: line.schedule for line in (await service.runners()).items} == {
        "added": weekly,
        "coded": "every 60s",
    }
    await service.act_on_runner("added", remove, ANN)
    with pytest.raises(RequestRefused, match="declared in code"):
        await service.act_on_runner("coded", remove, ANN)
    assert [line.name for line in (await service.runners()).items] == ["coded"]
    assert [entry.action for entry in (await service.audit(Before())).items] == ["runner.remove", "runner.edit"]
    for wrong in ({"action": "edit"}, {"action": "run", "schedule": weekly}, {"action": "edit", "schedule": "now"}):
        with pytest.raises(ValidationError):
            RunnerAction.model_validate(wrong)


async def test_a_subscription_is_paused_and_replayed(service: Service, conn: psycopg.Connection[Any]) -> None:
    run_sync(conn, subscribe("out", target="nats", topics=["paid"], partitions=2, beginning=False))
    (line,) = (await service.subscriptions()).items
    assert (line.name, line.target, line.lag_events, len(line.partitions)) == ("out", "nats", 0, 2)
    await service.act_on_subscription("out", SubscriptionAction(action="pause"), ANN)
    assert (await service.subscriptions()).items[0].paused
    done = await service.act_on_subscription("out", SubscriptionAction(action="replay", after=1), ANN)
    assert done.message.startswith("out: ")
    assert (await service.parked("out", Before())).items == []


# --- bounds


async def test_a_read_that_meets_a_lock_names_who_holds_it(database: str, conn: psycopg.Connection[Any]) -> None:
    async with Service(database, timeout=timedelta(milliseconds=100)) as service:
        with conn.transaction():
            conn.execute("LOCK TABLE holdfast.job IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(RequestRefused) as refused:
                await service.jobs(JobSearch())
    assert (refused.value.status, refused.value.code) == (503, "locked")
    assert f"Session {conn.info.backend_pid} of the user postgres has locked the table" in refused.value.message


async def test_a_database_that_is_not_there_is_said_to_be(unused_tcp_port: int) -> None:
    async with Service(f"postgresql://u:hush@127.0.0.1:{unused_tcp_port}/d") as service:
        with pytest.raises(RequestRefused) as refused:
            await asyncio.wait_for(service.overview(), 15)
    assert refused.value.status == 503
    assert "hush" not in str(refused.value)


async def test_no_more_connections_are_open_than_allowed(database: str, conn: psycopg.Connection[Any]) -> None:
    async with Service(database, connections=2, timeout=PATIENT) as service:
        await asyncio.gather(*(service.queues() for _ in range(40)))
        used = number(conn, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holdfast ops'")
    assert used <= 2


async def test_cancelling_by_filter_stops_at_its_cap_whatever_the_statuses(
    service: Service, conn: psycopg.Connection[Any]
) -> None:
    enqueue(conn, 5, delay_ms=3_600_000)
    (parked,) = enqueue(conn)
    conn.execute("UPDATE holdfast.job SET status = 'blocked' WHERE id = %s", [parked])
    action = JobAction(action="cancel", filter=JobFilter(kind="mail"), limit=3)
    answer = await service.act_on_jobs(action, ANN)
    assert (answer.matched, answer.capped) == (3, True)


async def test_those_that_somebody_holds_are_busy_however_many(
    service: Service, conn: psycopg.Connection[Any], connect: Connect
) -> None:
    ids = enqueue(conn, 50, delay_ms=3_600_000)
    other = connect()
    with other.transaction():
        other.execute("SELECT FROM holdfast.job WHERE id = ANY (%s) FOR UPDATE", [ids[:40]])
        action = JobAction(action="cancel", filter=JobFilter(kind="mail"), preview=False)
        answer = await service.act_on_jobs(action, ANN)
        bulk = await carried_out(service, answer)
    assert (bulk.done, bulk.refused, len(bulk.refusals)) == (10, 40, 20)
    assert {refused.why for refused in bulk.refusals} == {"another session is changing it"}


async def test_one_that_cannot_be_retried_holds_up_no_other(service: Service, conn: psycopg.Connection[Any]) -> None:
    before, other = enqueue(conn), enqueue(conn, kind="plain")
    after = enqueue(conn, kind="after", blockers=before, run_anyway=True)
    fail(conn, [*other, *after])
    complete(conn, before)
    conn.execute("DELETE FROM holdfast.job_history")  # as it ages out long before dead letters do
    answer = await service.act_on_jobs(JobAction(action="retry", ids=[*other, *after], preview=False), ANN)
    assert answer.done == 1
    [refused] = answer.refused
    assert (refused.id, refused.why.partition(":")[0]) == (after[0], f"there is no chain {before[0]}")


async def test_dead_letters_of_a_time_are_found_behind_many_newer_ones(
    service: Service, conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk_module, "DEAD_LETTERS_LOOKED_AT", 5)
    old = enqueue(conn, 3, kind="old")
    fail(conn, old)
    conn.execute("UPDATE holdfast.job_failed SET created_at = now() - interval '5 hours'")
    conn.execute("DELETE FROM holdfast.landmark")
    conn.execute("INSERT INTO holdfast.landmark (at, last_id) VALUES (now() - interval '2 hours', %s)", [old[-1]])
    fail(conn, enqueue(conn, 7, kind="new"))
    hidden = await service.dead_letters(DeadLetterSearch(kind="old"))
    assert (hidden.items, hidden.looked.complete) == ([], False)
    until = datetime.now(UTC) - timedelta(hours=4)
    [group] = (await service.dead_letters(DeadLetterSearch(created_until=until))).items
    assert (group.kind, group.jobs) == ("old", 3)


async def test_cancelling_what_waits_cancels_those_behind_an_order_key_too(
    service: Service, conn: psycopg.Connection[Any], database: str
) -> None:
    app = make_app(database)
    for number_ in range(5):
        await enqueue_in_shop(app, "mail.send", f"{number_}@example.org", order_key="customer-7")
    conn.execute("UPDATE holdfast.job SET status = 'blocked' WHERE id > (SELECT min(id) FROM holdfast.job)")
    answer = await service.act_on_queue("mail", QueueAction(action="cancel_waiting", preview=False), ANN)
    assert isinstance(answer, JobActionResult)
    assert (answer.matched, answer.done) == (5, 5)
    settings = Settings.load({}, tick_runners=("outbox",))
    for _ in range(6):
        await run_tick(application_of(app, settings))
    assert number(conn, "SELECT count(*) FROM holdfast.job") == 0
    assert number(conn, "SELECT count(*) FROM holdfast.job_history WHERE status = 'cancelled'") == 5


async def test_a_preview_of_named_jobs_says_to_which_it_will_not_be_done(
    service: Service, conn: psycopg.Connection[Any]
) -> None:
    waiting, ended, dead = enqueue(conn, delay_ms=3_600_000), enqueue(conn), enqueue(conn)
    complete(conn, ended)
    fail(conn, dead)
    ids = [*waiting, *ended, *dead, 2**62]
    preview = await service.act_on_jobs(JobAction(action="delete", ids=ids), ANN)
    assert (preview.matched, [job.id for job in preview.sample]) == (1, waiting)
    assert [refused.id for refused in preview.refused] == ids[1:]
    preview = await service.act_on_jobs(JobAction(action="retry", ids=ids), ANN)
    assert (preview.matched, [job.id for job in preview.sample]) == (1, dead)


async def test_what_came_after_a_preview_can_be_left_alone(service: Service, conn: psycopg.Connection[Any]) -> None:
    shown = enqueue(conn, 3, delay_ms=3_600_000)
    preview = await service.act_on_jobs(JobAction(action="delete", filter=JobFilter(kind="mail")), ANN)
    later = enqueue(conn, 4, delay_ms=3_600_000)
    filter_ = JobFilter(kind="mail", created_until=preview.at)
    assert (await service.act_on_jobs(JobAction(action="delete", filter=filter_, preview=False), ANN)).done == len(
        shown
    )
    assert {job.id for job in (await service.jobs(JobSearch(kind="mail"))).items} == set(later)
