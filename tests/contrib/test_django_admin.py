"""The read-only admin: what it shows, what it refuses, and what it costs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from holdfast._store.inspect import MOST
from holdfast.contrib.django import admin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kit.ledger import Ledger


LISTS = ["job", "endedjob", "deadletter", "schedule", "worker", "run"]
MANY = 20_000


def fill(ledger: Ledger, rows: int) -> None:
    """Fill every table: of kinds, queues and runners one is rare; what has ended did so on two days."""
    rare = "CASE WHEN n % 1000 = 0 THEN '{}' ELSE '{}' END".format
    into_job = (
        "INSERT INTO holdfast.job (created_at, available_at, payload, queue, kind) SELECT now(), now(), '{\"n\": 1}'"
    )
    into_history = (
        "INSERT INTO holdfast.job_history (id, created_at, available_at, finished_at, status, attempt, max_attempts, "
        "priority, queue, kind) SELECT n, now(), now(), now() - n % 2 * interval '20 hours', 'completed', 1, 3, 5"
    )
    lease = "UPDATE holdfast.job SET status = 'processing', locked_until = now(), locked_by = 1, lock_token = 1"
    series = f"FROM generate_series(1, {rows}) n"
    for statement in (
        f"{into_job}, {rare('press', 'default')}, {rare('book.print', 'book.ship')} {series}",
        f"{lease} WHERE id % 2000 = 0",
        "UPDATE holdfast.job SET later = true WHERE id % 500 = 1",
        f"{into_history}, 'default', 'book.ship' {series}",
        "INSERT INTO holdfast.job_failed SELECT * FROM holdfast.job_history",
        f"INSERT INTO holdfast.worker (name, stopped_at) SELECT 'w', now() {series}",
        f"INSERT INTO holdfast.schedule (name, what, schedule) SELECT n, 'runner', 'every 60s' {series}",
        f"INSERT INTO holdfast.run (started_at, runner) SELECT now(), {rare('reaper', 'outbox')} {series}",
        "ANALYZE",
    ):
        ledger.conn.execute(statement.encode())


@pytest.fixture
def client(django_database: str) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    return client


def page(client: Client, path: str) -> str:
    answer = client.get(f"/admin/holdfast/{path}")
    assert answer.status_code == 200, answer
    return answer.content.decode()


@pytest.fixture
def small(ledger: Ledger) -> None:
    fill(ledger, 2000)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", LISTS)
def test_a_list_leads_to_each_of_its_rows_and_to_nothing_that_changes_one(client: Client, name: str) -> None:
    listed = page(client, f"{name}/")
    [first, *_] = re.findall(rf'href="/admin/holdfast/{name}/(\d+)/change/', listed)
    assert first == ("1" if name == "schedule" else "2000"), "the first name, or the newest"
    shown = page(client, f"{name}/{first}/change/")
    inputs = re.findall('<(?:input type="([a-z]+)"|textarea|select)', shown.split('<div id="content-main">')[1])
    assert set(inputs) == {"hidden"}, "nothing to fill in, nothing to press"
    for path in (f"{name}/add/", f"{name}/{first}/delete/"):
        assert client.get(f"/admin/holdfast/{path}").status_code == 403
    assert client.post(f"/admin/holdfast/{name}/{first}/change/", {"kind": "x"}).status_code == 403
    assert client.get(f"/admin/holdfast/{name}/{first}/history/").status_code == 200


@pytest.mark.usefixtures("small")
def test_a_job_is_shown_with_its_payload(client: Client) -> None:
    shown = page(client, "job/1000/change/")
    assert "{&quot;n&quot;: 1}" in shown
    assert "book.print" in shown


@pytest.mark.usefixtures("small")
def test_a_user_without_view_permission_sees_nothing(client: Client) -> None:
    staff = User.objects.create_user("eve", is_staff=True)
    client.force_login(staff)
    assert client.get("/admin/holdfast/job/").status_code == 403
    staff.user_permissions.add(Permission.objects.get(codename="view_job"))
    assert client.get("/admin/holdfast/job/").status_code == 200
    assert client.get("/admin/holdfast/worker/").status_code == 403
    assert set(Permission.objects.filter(content_type__app_label="holdfast").values_list("codename", flat=True)) == {
        "retry_deadletter",
        "control_schedule",
        *(f"view_{name}" for name in LISTS),
    }


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("job/?status=processing", 1),
        ("job/?kind=book.print&queue=press", 2),
        ("job/?status=scheduled", 4),
        ("job/?status=nonsense", 100),
        ("endedjob/?days=1", 100),
        ("endedjob/?days=x", 100),
        ("worker/?state=live", 0),
        ("run/?runner=reaper&days=7", 2),
        ("job/?q=7", 1),
        ("job/?q=99999999999999999999", 0),
        ("job/?q=book", 0),
    ],
)
def test_lists_can_be_narrowed(client: Client, path: str, found: int) -> None:
    assert page(client, path).count('<th class="field-id">') == found


def only_dead_letters(ledger: Ledger) -> None:
    for table in ("job", "job_history"):
        ledger.do(f"DELETE FROM holdfast.{table}")
    ledger.do("UPDATE holdfast.job_failed SET status = 'failed'")


def retry(client: Client, *ids: int) -> str:
    asked = {"action": "retry", "_selected_action": ids}
    return client.post("/admin/holdfast/deadletter/", asked, follow=True).content.decode()


@pytest.mark.usefixtures("small")
def test_dead_letters_are_retried_once_and_audited(client: Client, ledger: Ledger) -> None:
    only_dead_letters(ledger)
    assert "Retried: 2" in retry(client, 7, 8)
    shown = retry(client, 8, 9)
    assert "Retried: 1" in shown
    assert "Already retried: 1" in shown
    assert ledger.rows("SELECT replay_of, status::text FROM holdfast.job ORDER BY 1") == [
        (7, "pending"),
        (8, "pending"),
        (9, "pending"),
    ]
    assert ledger.rows("SELECT who, action, ids FROM holdfast.audit ORDER BY id") == [
        ("django:ada", "jobs.retry", [7, 8]),
        ("django:ada", "jobs.retry", [9]),
    ]


@pytest.mark.usefixtures("small")
def test_only_a_user_with_the_permission_retries(client: Client, ledger: Ledger) -> None:
    staff = User.objects.create_user("eve", is_staff=True)
    staff.user_permissions.add(Permission.objects.get(codename="view_deadletter"))
    client.force_login(staff)
    only_dead_letters(ledger)
    assert 'value="retry"' not in page(client, "deadletter/")
    retry(client, 7)
    assert ledger.rows("SELECT FROM holdfast.job") == []
    staff.user_permissions.add(Permission.objects.get(codename="retry_deadletter"))
    assert 'value="retry"' in page(client, "deadletter/")
    retry(client, 7)
    assert ledger.rows("SELECT replay_of FROM holdfast.job") == [(7,)]


def control(client: Client, action: str, *names: str) -> str:
    asked = {"action": action, "_selected_action": names}
    return client.post("/admin/holdfast/schedule/", asked, follow=True).content.decode()


@pytest.mark.usefixtures("small")
def test_schedules_are_paused_resumed_and_triggered_and_audited(client: Client, ledger: Ledger) -> None:
    assert "Paused: 2" in control(client, "pause", "7", "8", "gone")
    assert "Will run once, soon: 1" in control(client, "trigger", "8")
    assert "Resumed: 1" in control(client, "resume", "7")
    changed = "SELECT name, paused, paused_by, triggered_at IS NOT NULL FROM holdfast.schedule WHERE name IN ('7', '8')"
    assert sorted(ledger.rows(changed)) == [("7", False, None, False), ("8", True, "django:ada", True)]
    assert ledger.rows("SELECT who, action, target FROM holdfast.audit ORDER BY id") == [
        ("django:ada", "runner.pause", "7"),
        ("django:ada", "runner.pause", "8"),
        ("django:ada", "runner.run", "8"),
        ("django:ada", "runner.resume", "7"),
    ]
    shown = page(client, "schedule/?q=199")
    assert re.findall(r"schedule/(\d+)/change", shown) == ["199", *map(str, range(1990, 2000))]


@pytest.mark.usefixtures("small")
def test_only_a_user_with_the_permission_controls_schedules(client: Client, ledger: Ledger) -> None:
    staff = User.objects.create_user("eve", is_staff=True)
    staff.user_permissions.add(Permission.objects.get(codename="view_schedule"))
    client.force_login(staff)
    for action in ("pause", "resume", "trigger"):
        assert f'value="{action}"' not in page(client, "schedule/?q=7")
        control(client, action, "7")
    assert ledger.rows("SELECT FROM holdfast.audit") == []
    staff.user_permissions.add(Permission.objects.get(codename="control_schedule"))
    assert "Paused: 1" in control(client, "pause", "7")


QUESTIONS = [
    "job/",
    "job/?p=5",
    "job/?status=pending&queue=press&kind=book.print",
    "job/?status=scheduled",
    "job/?status=processing",
    "job/?q=77",
    "endedjob/",
    "endedjob/?p=9",
    "endedjob/?days=1",
    "endedjob/?q=77",
    "deadletter/?days=7",
    "worker/",
    "worker/?state=live",
    "run/?runner=reaper",
    "schedule/",
    "schedule/?p=9",
    "schedule/?q=77",
]


def test_no_page_counts_a_table_or_reads_one_from_end_to_end(client: Client, ledger: Ledger) -> None:
    fill(ledger, MANY)
    for path in QUESTIONS:
        with CaptureQueriesContext(connection) as asked:
            page(client, path)
        ours = [query["sql"] for query in asked.captured_queries if '"holdfast".' in query["sql"]]
        assert len(ours) == 2, "how many, and which"
        for sql in ours:
            assert " LIMIT " in sql, (path, sql)
            [[plan]] = ledger.conn.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}".encode()).fetchall()
            assert max(read(plan[0]["Plan"])) <= 2 * MOST, (path, plan)


def read(plan: dict[str, Any]) -> Iterator[int]:
    """Yield how many rows each scan looked at."""
    if "Scan" in plan["Node Type"]:
        yield (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    for below in plan.get("Plans", ()):
        yield from read(below)


@pytest.mark.usefixtures("small")
def test_a_question_that_takes_too_long_is_given_up(
    client: Client, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "SECONDS", 0.05)

    with ledger.conn.transaction():
        ledger.do("LOCK TABLE holdfast.job")
        answer = client.get("/admin/holdfast/job/", follow=True)
    assert answer.redirect_chain == [("/admin/holdfast/", 302)]
    assert "took too long" in answer.content.decode()
