"""Tasks of Django 6, or of its backport on Django 5, are jobs of ours, run by a real worker."""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import connections, transaction

from holdfast.contrib.django.tasks import HoldfastBackend, _priority
from tests.contrib.book.application import app, new
from tests.contrib.book.tasks import DeclinedError, add, decline, fail_twice, greet, noted
from tests.contrib.django_names import (
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_enqueued,
    task_finished,
    task_started,
)
from tests.kit.databases import clone
from tests.kit.django_config import connected
from tests.kit.ledger import Ledger
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tools.postgres import Server

PATH = "tests.contrib.book.tasks"


class BackOutError(Exception):
    pass


@pytest.fixture
async def worker(django_database: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", django_database)
    monkeypatch.setenv("HOLDFAST_RETRY_BASE_MS", "1")
    async with app.worker(id="w", queues={"default": 2, "mail": 2}, poll_interval=0.05):
        yield
    await sync_to_async(connections.close_all)()


async def finished(result: Any) -> Any:
    async def ended() -> bool:
        await result.arefresh()
        return bool(result.is_finished)

    await until(ended)
    return result


def test_a_task_commits_and_rolls_back_with_the_data(django_database: str, ledger: Ledger) -> None:
    with suppress(BackOutError), transaction.atomic():
        add.enqueue(1)
        raise BackOutError
    assert ledger.value("SELECT count(*) FROM holdfast.job") == 0
    with transaction.atomic():
        result = add.enqueue(1, b=2)
        assert ledger.value("SELECT count(*) FROM holdfast.job") == 0
    assert ledger.value("SELECT kind FROM holdfast.job WHERE id = %s", int(result.id)) == f"{PATH}.add"
    assert (result.status, result.args, result.kwargs) == (TaskResultStatus.READY, [1], {"b": 2})


def test_the_example_of_the_page(django_database: str, ledger: Ledger) -> None:
    with transaction.atomic():
        user = User.objects.create(username="ada")
        result = greet.enqueue(user.username)  # a job, which commits with the user
    assert ledger.value("SELECT payload ->> 'args' FROM holdfast.job WHERE id = %s", int(result.id)) == '["ada"]'


def test_without_a_transaction_it_is_enqueued_at_once(django_database: str, ledger: Ledger) -> None:
    result = add.enqueue(1)
    assert ledger.value("SELECT id FROM holdfast.job") == int(result.id)


async def test_tasks_run_and_their_results_are_found_by_id(worker: None) -> None:
    sum_of = await finished(await add.aenqueue(1, b=2))
    hello = await finished(await greet.aenqueue("ada"))
    assert (sum_of.status, sum_of.return_value) == (TaskResultStatus.SUCCESSFUL, 3)
    assert (hello.return_value, hello.task.queue_name, hello.task.priority) == ({"hello": "ada"}, "mail", 10)
    again: Any = await add.aget_result(sum_of.id)
    assert again == sum_of
    assert again.worker_ids == ["w"]
    assert again.enqueued_at <= again.started_at <= again.finished_at
    assert again.attempts == 1


async def test_a_context_has_the_result_and_the_attempt(worker: None) -> None:
    result = await finished(await noted.aenqueue("x"))
    assert result.return_value == [1, result.id, "x"]


async def test_a_failed_task_has_the_error(worker: None) -> None:
    result = await finished(await decline.aenqueue())
    assert result.status == TaskResultStatus.FAILED
    (error,) = result.errors
    assert error.exception_class is DeclinedError
    assert "in decline" in error.traceback
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value


async def test_a_task_is_retried(worker: None) -> None:
    result = await finished(await fail_twice.aenqueue())
    assert (result.return_value, result.attempts) == (3, 3)
    assert [error.exception_class for error in result.errors] == [ValueError, ValueError]


async def test_django_sends_its_signals(worker: None) -> None:
    seen: list[tuple[str, str, Any]] = []

    def enqueued(sender: Any, task_result: Any, **_: Any) -> None:
        seen.append(("enqueued", task_result.id, task_result.status))

    def started(sender: Any, task_result: Any, **_: Any) -> None:
        seen.append(("started", task_result.id, task_result.status))

    def ended(sender: Any, task_result: Any, **_: Any) -> None:
        seen.append(("finished", task_result.id, task_result.status))

    task_enqueued.connect(enqueued, sender=HoldfastBackend)
    task_started.connect(started, sender=HoldfastBackend)
    task_finished.connect(ended, sender=HoldfastBackend)
    good = await finished(await add.aenqueue(1))
    bad = await finished(await decline.aenqueue())
    await until(lambda: len(seen) == 6)
    # The signal of an enqueue follows the commit, so a worker may have started the task before.
    sent = {signal for signal in seen if signal[0] == "enqueued"}
    assert sent == {("enqueued", result.id, TaskResultStatus.READY) for result in (good, bad)}
    assert [signal for signal in seen if signal not in sent] == [
        ("started", good.id, TaskResultStatus.RUNNING),
        ("finished", good.id, TaskResultStatus.SUCCESSFUL),
        ("started", bad.id, TaskResultStatus.RUNNING),
        ("finished", bad.id, TaskResultStatus.FAILED),
    ]


def test_run_after_queue_and_priority_are_kept(django_database: str, ledger: Ledger) -> None:
    later = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    result = add.using(run_after=later, queue_name="mail", priority=100).enqueue(1)
    found = ledger.conn.execute("SELECT queue, priority, available_at FROM holdfast.job").fetchone()
    assert found == ("mail", 0, later)
    read = add.get_result(result.id)
    assert (read.task.run_after, read.task.queue_name, read.task.priority) == (later, "mail", 100)
    assert read.status == TaskResultStatus.READY


def test_another_database_keeps_the_tasks_of_its_backend(server: Server, template: str, django_database: str) -> None:
    with clone(server, template) as orders, connected(orders=orders), Ledger(orders) as there:
        result = add.using(backend="orders").enqueue(1)
        assert there.value("SELECT id FROM holdfast.job") == int(result.id)
        assert add.using(backend="orders").get_result(result.id).backend == "orders"


@pytest.mark.parametrize("unknown", ["7", "x", "9" * 30, "-1"])
def test_an_unknown_result_does_not_exist(django_database: str, unknown: str) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        add.get_result(unknown)


def test_a_job_that_is_no_task_does_not_exist(django_database: str, ledger: Ledger) -> None:
    job = app.sync.enqueue(ledger.conn, new("book.print"))
    with pytest.raises(TaskResultDoesNotExist):
        add.get_result(str(job.id))


@pytest.mark.parametrize("kind", ["this.s", "this", ".", "this."])
def test_the_kind_of_a_job_does_not_decide_what_is_imported(django_database: str, ledger: Ledger, kind: str) -> None:
    job = ledger.value("SELECT holdfast.enqueue(%s, '{}')", kind)
    with pytest.raises(TaskResultDoesNotExist):
        add.get_result(str(job))
    assert "this" not in sys.modules


def test_a_result_is_found_by_a_process_that_has_not_imported_the_task(
    django_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = add.enqueue(1)
    monkeypatch.delitem(sys.modules, PATH)
    assert add.get_backend().get_result(result.id).task.module_path == f"{PATH}.add"


def test_every_priority_of_django_has_its_place() -> None:
    ours = [_priority(priority) for priority in range(-100, 101)]
    assert (ours[0], ours[100], ours[200]) == (9, 5, 0)
    assert ours == sorted(ours, reverse=True)
    assert set(ours) == set(range(10))
