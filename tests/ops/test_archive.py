"""The archive over HTTP: what is kept, what is exported, and a job that is only in a file."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from holdfast._archive.location import Location
from holdfast._archive.search import find
from holdfast._drivers import run
from holdfast._ops import archive
from holdfast._store.archive import closed_days, report_export, start_export
from holdfast.ops import operations
from tests.kit.access import PATIENT, make_token
from tests.kit.asking import Asked, ask, bearer
from tools.seaweedfs import REGION

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.applications import Starlette

    from tests.kit.archive import History
    from tests.kit.asking import Answered


class Caller:
    """An operations application, and tokens for it."""

    def __init__(self, site: Starlette, url: str) -> None:
        self.site = site
        self._tokens = {role: make_token(url, role) for role in ("viewer", "operator")}

    async def get(self, path: str, query: str = "") -> Answered:
        return await ask(self.site, Asked("GET", path, query, bearer(self._tokens["viewer"])))

    async def put(self, path: str, answer: Any, *, who: str = "operator") -> Answered:
        return await ask(self.site, Asked("PUT", path, json=answer, headers=bearer(self._tokens[who])))


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Caller]:
    site = operations(url=url, timeout=PATIENT)
    try:
        yield Caller(site, url)
    finally:
        await site.state.operations.close()


@pytest.fixture
def configured(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bucket is set for this process."""
    set_location(monkeypatch, history.location)


def set_location(monkeypatch: pytest.MonkeyPatch, location: Location) -> None:
    monkeypatch.setenv("HOLDFAST_ARCHIVE_BUCKET", location.bucket)
    monkeypatch.setenv("HOLDFAST_ARCHIVE_REGION", location.region or "")
    monkeypatch.setenv("HOLDFAST_ARCHIVE_ENDPOINT", location.endpoint or "")


@pytest.fixture
async def caller(history: History, configured: None) -> AsyncIterator[Caller]:
    async with opened(history.url) as caller:
        yield caller


async def left(history: History, jobs: int = 3) -> int:
    """Archive and drop a day with jobs that needed two attempts; return the id of the first."""
    day = history.day(
        100,
        jobs,
        payload="json_build_object('invoice_id', n, 'password', 'hush')",
        attempt="2",
        worker_id="7",
        ran_ms="40",
    )
    history.conn.execute(
        "INSERT INTO holdfast.attempt (job_id, ended_at, worker_id, outcome, attempt, ran_ms, error_code, error, log) "
        f"SELECT h.id, '{day} 09:00+00'::timestamptz + t.n * interval '1 hour', 7, t.outcome::holdfast.outcome, t.n, "
        "1500, t.code, t.error, t.log FROM holdfast.job_history h, "
        "(VALUES (1, 'retry', 'SMTPError', 'mailbox full', 'INFO shop: 7'), (2, 'completed', NULL, NULL, NULL)) "
        "AS t (n, outcome, code, error, log)"
    )
    first: int = history.value("SELECT min(id) FROM holdfast.job_history")
    await history.export()
    await history.cleanup()
    assert history.value("SELECT count(*) FROM holdfast.job_history") == 0
    return first


async def test_a_job_that_left_is_read_from_its_file_with_its_attempts(history: History, caller: Caller) -> None:
    job_id = await left(history)
    gone = await caller.get(f"/api/v1/jobs/{job_id}")
    assert (gone.status, gone.refusal.code) == (404, "archived")
    assert f"/api/v1/archive/jobs/{job_id}" in gone.refusal.detail
    answered = await caller.get(f"/api/v1/archive/jobs/{job_id}")
    assert answered.status == 200, answered
    found = answered.json
    assert found["complete"] is True
    assert [file["source"] for file in found["files"]] == ["job_history", "attempt"]
    job = found["job"]
    assert (job["id"], job["status"], job["kind"], job["attempt"]) == (str(job_id), "completed", "receipt.send", 2)
    assert [(a["attempt"], a["outcome"], a["error"]) for a in job["attempts"]] == [
        (1, "retry", "mailbox full"),
        (2, "completed", None),
    ]
    assert [a["log"] for a in job["attempts"]] == ["INFO shop: 7", None]
    assert job["attempts"][0]["seconds"] == 1.5
    assert job["payload"] == {"invoice_id": 1, "password": "[redacted]"}
    assert job["redacted_parts"] == ["payload"]


@pytest.mark.nightly
async def test_a_chain_that_left_is_said_to_be_in_the_archive(history: History, caller: Caller) -> None:
    job_id = await left(history)
    job = (await caller.get(f"/api/v1/archive/jobs/{job_id}")).json["job"]
    gone = await caller.get(f"/api/v1/chains/{job['chain_id']}")
    assert (gone.status, gone.refusal.code) == (404, "archived")
    assert gone.refusal.detail == (
        f"Chain {job_id} is no longer in the database. It may be in the archive: ask GET /api/v1/archive/jobs/{job_id}."
    )
    answered = await caller.get(f"/api/v1/chains/{job_id + 1_000_000}")
    assert (answered.status, answered.refusal.code) == (404, "not_found")


@pytest.mark.nightly
async def test_a_first_attempt_that_completed_and_a_job_that_no_file_can_hold(history: History, caller: Caller) -> None:
    history.day(100, 1, worker_id="7", ran_ms="250")
    job_id: int = history.value("SELECT id FROM holdfast.job_history")
    await history.export()
    await history.cleanup()
    [attempt] = (await caller.get(f"/api/v1/archive/jobs/{job_id}")).json["job"]["attempts"]
    assert (attempt["attempt"], attempt["outcome"], attempt["seconds"]) == (1, "completed", 0.25)
    for path in (f"/api/v1/archive/jobs/{job_id + 1_000_000}", f"/api/v1/jobs/{job_id + 1_000_000}"):
        answered = await caller.get(path)
        assert (answered.status, answered.refusal.code) == (404, "not_found")


@pytest.mark.nightly
async def test_a_job_that_is_in_none_of_the_files_is_not_found(history: History, caller: Caller) -> None:
    history.day(100, 2, id="1000 * n")
    await history.export()
    answered = await caller.get("/api/v1/archive/jobs/1500")
    assert (answered.status, answered.refusal.code) == (404, "not_found")
    assert "none of the files" in answered.refusal.detail


class Looked:
    """The days of the files that were read, in this order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.days: list[tuple[str, str]] = []

        def noted(store: Any, exports: Any, id_: int) -> Any:
            self.days += [(export.source, export.starts_on.isoformat()) for export in exports]
            return find(store, exports, id_)

        monkeypatch.setattr(archive, "find", noted)


async def stragglers(history: History) -> tuple[int, int, list[str]]:
    """Archive five days, each of which has a job that was created on the first: any may hold an id of the first.

    Return a job that ended on the day on which it was created, one that ended on the last, and the days.
    """
    days = [history.jobs_of(90 - n, 1, id=f"{10 + n}") for n in range(5)]
    for n, day in enumerate(days):
        history.add(day, 1, id=f"{1000 + n}")
    history.add(days[0], 1, id="500")
    history.add(days[4], 1, id="501", created_at=f"'{days[0]} 10:00+00'")
    await history.export()
    history.conn.execute("DELETE FROM holdfast.job_history")
    return 500, 501, days


@pytest.mark.nightly
async def test_a_job_is_looked_for_first_on_the_day_on_which_most_jobs_end(
    history: History, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    same_day, _, days = await stragglers(history)
    looked = Looked(monkeypatch)
    monkeypatch.setattr(archive, "_MOST_FILES", 1)
    answered = await caller.get(f"/api/v1/archive/jobs/{same_day}")
    assert answered.status == 200, answered
    assert looked.days == [("job_history", days[0])]


@pytest.mark.nightly
async def test_a_job_that_may_be_in_files_that_were_not_read_is_not_said_never_to_have_been(
    history: History, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, delayed, _ = await stragglers(history)
    monkeypatch.setattr(archive, "_MOST_FILES", 4)
    answered = await caller.get(f"/api/v1/archive/jobs/{delayed}")
    assert (answered.status, answered.refusal.code) == (503, "archive_too_many_files")
    assert "retry-after" not in answered.headers
    assert answered.refusal.detail == (
        f"Job {delayed} is not in the 4 oldest files that may hold it, and there are more: "
        f"`holdfast archive query --job {delayed}` reads all of them."
    )
    monkeypatch.setattr(archive, "_MOST_FILES", 5)
    assert (await caller.get(f"/api/v1/archive/jobs/{delayed}")).status == 200


@pytest.mark.nightly
async def test_a_job_that_was_not_found_before_the_time_ended_is_not_said_never_to_have_been(
    history: History, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, delayed, _ = await stragglers(history)
    looked = Looked(monkeypatch)
    # Each file takes a second.
    clock = SimpleNamespace(monotonic=lambda: float(len(looked.days)))
    monkeypatch.setattr(archive, "time", clock)
    monkeypatch.setattr(archive, "SECONDS", 4.0)
    answered = await caller.get(f"/api/v1/archive/jobs/{delayed}")
    assert (answered.status, answered.refusal.code) == (503, "archive_too_slow")
    assert len(looked.days) == 4
    assert answered.refusal.detail == (
        f"There was not enough time to read every file that may hold job {delayed}: "
        f"`holdfast archive query --job {delayed}` reads all of them."
    )


@pytest.mark.nightly
async def test_files_of_attempts_outside_the_days_of_the_job_do_not_displace_its_own(
    history: History, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = [history.day(90 - n, families=["job_history", "attempt"]) for n in range(4)]
    history.add(days[2], 1, id="500", attempt="3", created_at=f"'{days[1]} 10:00+00'")
    for n, day in enumerate(days):
        for job_id in (10, 500 if n in {1, 2} else 1000, 1000):
            history.conn.execute(
                "INSERT INTO holdfast.attempt (job_id, ended_at, outcome, attempt, error) "
                f"VALUES ({job_id}, '{day} 10:00+00', 'retry', {n}, 'mailbox full')"
            )
    await history.export()
    history.conn.execute("TRUNCATE holdfast.job_history_days, holdfast.attempt_days")
    monkeypatch.setattr(archive, "_MOST_FILES", 2)
    found = (await caller.get("/api/v1/archive/jobs/500")).json
    assert ([one["attempt"] for one in found["job"]["attempts"]], found["complete"]) == ([1, 2], True)
    monkeypatch.setattr(archive, "_MOST_FILES", 1)
    found = (await caller.get("/api/v1/archive/jobs/500")).json
    assert ([one["attempt"] for one in found["job"]["attempts"]], found["complete"]) == ([1], False)


@pytest.mark.nightly
async def test_without_a_bucket_the_answer_says_what_to_set(history: History) -> None:
    job_id = await left(history)
    async with opened(history.url) as caller:
        assert (await caller.get("/api/v1/archive")).json["configured"] is False
        answered = await caller.get(f"/api/v1/archive/jobs/{job_id}")
    assert (answered.status, answered.refusal.code) == (503, "archive_not_configured")
    assert "HOLDFAST_ARCHIVE_BUCKET" in answered.refusal.detail
    assert answered.headers["retry-after"] == "60"


@pytest.mark.nightly
async def test_a_store_that_does_not_answer_is_given_up(
    history: History, monkeypatch: pytest.MonkeyPatch, unused: Callable[[], socket.socket]
) -> None:
    job_id = await left(history)
    unresponsive = unused()
    set_location(monkeypatch, Location("deaf", REGION, f"http://127.0.0.1:{unresponsive.getsockname()[1]}"))
    monkeypatch.setattr(archive, "SECONDS", 1.0)
    async with opened(history.url) as caller:
        answered = await caller.get(f"/api/v1/archive/jobs/{job_id}")
        assert (answered.status, answered.refusal.code) == (503, "archive_too_slow")
        assert answered.headers["retry-after"] == "30"
        # Threads that still wait count, so that callers who ask again cannot pile them up.
        more = await asyncio.gather(
            *(caller.get(f"/api/v1/archive/jobs/{job_id}") for _ in range(archive.MOST_READERS))
        )
        assert sorted({one.refusal.code for one in more}) == ["archive_busy", "archive_too_slow"]
        # A caller that waits for the object store does not use up the turns at the database.
        asking = asyncio.create_task(caller.get(f"/api/v1/archive/jobs/{job_id}"))
        assert (await caller.get("/api/v1/archive")).status == 200
        await asking


@pytest.mark.nightly
async def test_a_store_that_is_gone_is_answered_without_its_details(
    history: History, monkeypatch: pytest.MonkeyPatch, unused: Callable[[], socket.socket]
) -> None:
    job_id = await left(history)
    closed = unused()
    port = closed.getsockname()[1]
    closed.close()
    set_location(monkeypatch, Location("gone", REGION, f"http://127.0.0.1:{port}"))
    async with opened(history.url) as caller:
        answered = await caller.get(f"/api/v1/archive/jobs/{job_id}")
    assert (answered.status, answered.refusal.code) == (503, "archive_unreachable")
    assert str(port) not in answered.refusal.detail


@pytest.fixture
def unused() -> Any:
    """Make sockets that accept connections and never answer."""
    made: list[socket.socket] = []

    def make() -> socket.socket:
        made.append(socket.create_server(("127.0.0.1", 0)))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.nightly
async def test_totals_retention_and_the_next_drop(history: History, caller: Caller) -> None:
    await left(history)
    history.day(10, 5)
    await history.export()
    answered = await caller.get("/api/v1/archive")
    assert answered.status == 200, answered
    found = answered.json
    assert (found["configured"], found["archived"]) == (True, True)
    assert found["bucket"] == history.location.address
    sources = {one["source"]: one for one in found["sources"]}
    jobs = sources["job_history"]
    assert (jobs["periods"], jobs["rows"], jobs["verified"], jobs["dropped"]) == (2, 8, 1, 1)
    assert jobs["bytes"] > 0
    kept = {one["family"]: one for one in found["retention"]}
    assert kept["job_history"]["changeable"] is True
    assert kept["attempt"]["changeable"] is False
    assert found["next_drop"] == min(one["next_drop"] for one in sources.values() if one["next_drop"])


@pytest.mark.nightly
async def test_exports_by_source_and_days_newest_first(history: History, caller: Caller) -> None:
    days = [history.day(ago, 1) for ago in (12, 11, 10)]
    await history.export()
    every = (await caller.get("/api/v1/archive/exports", "source=job_history")).json
    assert [one["starts_on"] for one in every["items"]] == days[::-1]
    assert every["complete"] is True
    assert every["items"][0]["state"] == "verified"
    two = (await caller.get("/api/v1/archive/exports", f"source=job_history&since={days[1]}&limit=1")).json
    assert ([one["starts_on"] for one in two["items"]], two["complete"]) == ([days[2]], False)
    older = (await caller.get("/api/v1/archive/exports", f"source=job_history&until={days[1]}")).json
    assert [one["starts_on"] for one in older["items"]] == [days[0]]


@pytest.mark.nightly
async def test_exports_that_run_or_failed_come_first_however_old_they_are(history: History, caller: Caller) -> None:
    days = [history.jobs_of(ago, 1) for ago in (14, 13, 12, 11, 10)]
    await history.export()
    change = "UPDATE holdfast.archive_exports SET state = {}, locked_until = {}, error = {} WHERE starts_on = %s"
    history.conn.execute(change.format("'uploaded'", "now() + interval '1 hour'", "NULL"), [days[0]])
    history.conn.execute(change.format("'exporting'", "NULL", "'refused'"), [days[1]])
    history.conn.execute(change.format("'exporting'", "now() - interval '1 hour'", "NULL"), [days[2]])
    ordered = [days[0], days[2], days[1], days[4], days[3]]
    for limit in range(1, 6):
        found = (await caller.get("/api/v1/archive/exports", f"source=job_history&limit={limit}")).json
        assert [one["starts_on"] for one in found["items"]] == ordered[:limit]
        assert found["complete"] is (limit == 5)
    assert found["items"][0]["running"] is True
    # By ranges of days, every one is seen once.
    parts = [f"until={days[1]}", f"since={days[1]}&until={days[3]}", f"since={days[3]}"]
    seen = [
        one["starts_on"]
        for part in parts
        for one in (await caller.get("/api/v1/archive/exports", f"source=job_history&{part}")).json["items"]
    ]
    assert seen == [days[0], days[2], days[1], days[4], days[3]]


async def test_a_running_export_has_its_progress_and_a_failed_one_its_error(history: History, caller: Caller) -> None:
    history.day(12, 4)
    async with history.connected() as conn:
        period = next(one for one in await run(conn, closed_days(limit=100)) if one.source == "job_history")
        token = await run(conn, start_export(period._replace(rows_expected=8)))
        assert token is not None
        await run(conn, report_export(period, token, rows_done=2))
    [line] = (await caller.get("/api/v1/archive/exports", "source=job_history")).json["items"]
    assert (line["state"], line["running"], line["progress"], line["rows_done"]) == ("exporting", True, 0.25, 2)
    history.conn.execute(
        "UPDATE holdfast.archive_exports SET locked_until = NULL, error = 'refused: postgresql://me:hush@db/x'"
    )
    [line] = (await caller.get("/api/v1/archive/exports", "source=job_history")).json["items"]
    assert (line["running"], line["progress"]) == (False, None)
    assert line["error"] == "refused: postgresql://me:***@db/x"


async def test_an_operator_changes_the_retention_and_is_recorded(history: History, caller: Caller) -> None:
    change = {"family": "job_history", "days": 45}
    assert (await caller.put("/api/v1/archive/retention", change, who="viewer")).status == 403
    before = history.value(
        "SELECT extract(day FROM keep)::integer FROM holdfast.retention WHERE family = 'job_history'"
    )
    answered = await caller.put("/api/v1/archive/retention", change)
    assert answered.status == 200, answered
    kept = {one["family"]: one["days"] for one in (await caller.get("/api/v1/archive")).json["retention"]}
    assert kept["job_history"] == 45
    [entry] = (await caller.get("/api/v1/audit", "limit=1")).json["items"]
    assert (entry["action"], entry["target"]) == ("archive.retention", "job_history")
    assert entry["detail"] == {"days": 45, "before": before}


@pytest.mark.parametrize(
    "change",
    [
        {"family": "job_history", "days": 1},
        {"family": "job_history", "days": 36_501},
        {"family": "job_history", "days": "45"},
        {"family": "attempt", "days": 45},
        {"family": "job_history"},
        {"family": "job_history", "days": 45, "force": True},
    ],
)
async def test_retention_out_of_bounds_is_refused(history: History, caller: Caller, change: Any) -> None:
    answered = await caller.put("/api/v1/archive/retention", change)
    assert (answered.status, answered.refusal.code) == (422, "invalid")


@pytest.mark.parametrize("query", ["limit=1001", "since=1700000000", "until=2026-1-1", "since=2026-02-30", "sort=rows"])
async def test_a_search_for_exports_is_bounded(history: History, caller: Caller, query: str) -> None:
    answered = await caller.get("/api/v1/archive/exports", query)
    assert (answered.status, answered.refusal.code) == (422, "invalid")
