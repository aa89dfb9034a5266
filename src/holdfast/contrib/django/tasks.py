"""A backend for `django.tasks` of Django 6, and for its backport django-tasks: each task is a kind of job.

TASKS = {"default": {"BACKEND": "holdfast.contrib.django.tasks.HoldfastBackend"}}
"""

from __future__ import annotations

import builtins
import json
import sys
from datetime import UTC, datetime
from importlib import import_module
from inspect import iscoroutinefunction
from math import ceil
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from django.apps import apps
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.utils.module_loading import autodiscover_modules, import_string, module_has_submodule
from django.utils.timezone import is_naive, make_aware

from holdfast._drivers import run_sync
from holdfast._logs.log import context
from holdfast._model.job import Job  # noqa: TC001 - the handlers' annotations are read
from holdfast._model.kind import Kind
from holdfast._store.inspect import list_attempts, read_job
from holdfast.contrib.django._application import application

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started

    from holdfast._app.app import Holdfast
    from holdfast._store.inspect import AttemptLine
else:
    try:
        from django.tasks.backends.base import BaseTaskBackend
        from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
        from django.tasks.exceptions import TaskResultDoesNotExist
        from django.tasks.signals import task_enqueued, task_finished, task_started
    except ModuleNotFoundError:
        try:
            from django_tasks.backends.base import BaseTaskBackend
            from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
            from django_tasks.exceptions import TaskResultDoesNotExist
            from django_tasks.signals import task_enqueued, task_finished, task_started
        except ModuleNotFoundError as exc:
            raise ImportError(
                "holdfast.contrib.django.tasks needs Django 6, or on Django 5 its backport: pip install django-tasks"
            ) from exc

__all__ = ["HoldfastBackend"]

P = ParamSpec("P")
R = TypeVar("R")

_STATUSES = {
    "processing": TaskResultStatus.RUNNING,
    "completed": TaskResultStatus.SUCCESSFUL,
    "failed": TaskResultStatus.FAILED,
    "cancelled": TaskResultStatus.FAILED,
}
_LAST_ID_DIGITS = 18
_DEFAULT, _LOWEST, _MOST = 5, 9, 100


class HoldfastBackend(BaseTaskBackend):
    """Enqueues tasks as jobs in the current transaction. `manage.py holdfast worker` runs them.

    OPTIONS: `DATABASE`: the alias of the database that keeps the jobs. Default: "default". `RETRY`: a `Retry` for every
    task of this backend. Default: three attempts. `MODULES`: modules with tasks that a worker imports, in addition to
    `tasks.py` of every installed app. Default: none.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def enqueue(self, task: Task[P, R], args: Any, kwargs: Any) -> TaskResult[P, R]:
        """Enqueue the task in the current transaction, or at once if there is none, and return its result."""
        self.validate_task(task)
        app = application()
        new = self.kind_of(app, task).new(list(args), dict(kwargs), backend=self.alias, priority=task.priority)
        new = new.options(queue=task.queue_name, priority=_priority(task.priority))
        if task.run_after is not None:
            new = new.options(at=make_aware(task.run_after) if is_naive(task.run_after) else task.run_after)
        with transaction.atomic(using=self.database, savepoint=False):
            handle = app.sync.enqueue(connections[self.database], new)
        called = {"backend": self.alias, "args": list(args), "kwargs": dict(kwargs)}
        result: TaskResult[P, R] = _result(task, handle.id, **called, enqueued_at=datetime.now(UTC))
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult[..., Any]:
        """Return the state of a task by the id of its result, which is the id of its job."""
        conn, row = connections[self.database], None
        if result_id.isdecimal() and len(result_id) <= _LAST_ID_DIGITS:
            row = run_sync(conn, read_job(int(result_id)))
        task = None if row is None else _registered(row["kind"])
        if row is None or task is None:
            raise TaskResultDoesNotExist(result_id)
        attempts = run_sync(conn, list_attempts(row["id"]))
        return self._read(task, row, attempts[::-1])

    @property
    def database(self) -> str:
        """The alias of the database that keeps the jobs."""
        return str(self.options.get("DATABASE", DEFAULT_DB_ALIAS))

    def kind_of(self, app: Holdfast, task: Task[..., Any]) -> Kind[..., Any]:
        """Return the kind of a task, named by its path. Register it the first time."""
        known = app.kinds.get(task.module_path)
        if isinstance(known, Kind):
            return known
        handler = _handler(task, type(self))
        return app.job(task.module_path, queue=task.queue_name, retry=self.options.get("RETRY"))(handler)

    def _read(self, task: Task[..., Any], row: dict[str, Any], attempts: list[AttemptLine]) -> TaskResult[..., Any]:
        kind = self.kind_of(application(), task)
        payload = kind.arguments(json.dumps(row["payload"]), row["payload_version"] or 1)
        created, available = datetime.fromisoformat(row["created_at"]), datetime.fromisoformat(row["available_at"])
        started = [attempt.started_at for attempt in attempts if attempt.started_at is not None]
        workers = [attempt.worker_name or str(attempt.worker) for attempt in attempts if attempt.worker is not None]
        if row["status"] == "processing":
            workers.append(str(row["locked_by"]))
        deferred = available if available > created and not attempts else None
        result = _result(
            task.using(queue_name=row["queue"], priority=payload["priority"], run_after=deferred),
            row["id"],
            backend=payload["backend"],
            args=payload["args"],
            kwargs=payload["kwargs"],
            enqueued_at=created,
            status=_STATUSES.get(row["status"], TaskResultStatus.READY),
            started_at=started[0] if started else None,
            last_attempted_at=started[-1] if started else None,
            finished_at=None if row.get("finished_at") is None else datetime.fromisoformat(row["finished_at"]),
            errors=[_error(task, attempt) for attempt in attempts if attempt.error_code is not None],
            worker_ids=workers,
        )
        if row["status"] == "completed":
            object.__setattr__(result, "_return_value", kind.read_result(json.dumps(row.get("result"))))
        return result


def register_tasks(app: Holdfast) -> None:
    """Import `tasks.py` of every installed app, and register the tasks whose backend is a HoldfastBackend."""
    backends = dict(_backends())
    if not backends:
        return
    autodiscover_modules("tasks")
    names = [
        f"{config.name}.tasks"
        for config in apps.get_app_configs()
        if config.module is not None and module_has_submodule(config.module, "tasks")
    ]
    names += [name for backend in backends.values() for name in backend.options.get("MODULES", ())]
    for task in (found for name in names for found in vars(import_module(name)).values()):
        if isinstance(task, Task) and task.backend in backends:
            backends[task.backend].kind_of(app, task)


def _backends() -> Iterator[tuple[str, HoldfastBackend]]:
    for alias, params in (getattr(settings, "TASKS", None) or {}).items():
        backend = import_string(params["BACKEND"])
        if issubclass(backend, HoldfastBackend):
            yield alias, backend(alias, params)


def _registered(path: str) -> Task[..., Any] | None:
    """Return the task at this path; None if there is none, also after all tasks were registered."""
    if (found := _loaded(path)) is None:
        register_tasks(application())
        found = _loaded(path)
    return found


def _loaded(path: str) -> Task[..., Any] | None:
    """Return the task at this path in a module that is imported already; None if there is none.

    The path is the kind of a job, which may be any text: it must not decide which code is imported.
    """
    module, _, name = path.rpartition(".")
    found = vars(sys.modules[module]).get(name) if module in sys.modules else None
    return found if isinstance(found, Task) else None


def _handler(task: Task[..., Any], sender: type[HoldfastBackend]) -> Any:
    def run(job: Job[Any], args: list[Any], kwargs: dict[str, Any], backend: str = "", priority: int = 0) -> Any:
        with _Running(sender, job, task.using(priority=priority), backend=backend, args=args, kwargs=kwargs) as running:
            running.value = task.func(*running.context, *args, **kwargs)
        return running.value

    async def run_async(
        job: Job[Any], args: list[Any], kwargs: dict[str, Any], backend: str = "", priority: int = 0
    ) -> Any:
        with _Running(sender, job, task.using(priority=priority), backend=backend, args=args, kwargs=kwargs) as running:
            running.value = await task.func(*running.context, *args, **kwargs)
        return running.value

    return run_async if iscoroutinefunction(task.func) else run


class _Running:
    """One attempt: sends Django's signals around it."""

    def __init__(self, sender: type[HoldfastBackend], job: Job[Any], task: Task[..., Any], **called: Any) -> None:
        self.value: Any = None
        self._sender = sender
        now, worker = datetime.now(UTC), str(context.get().get("worker", ""))
        self._result = _result(
            task,
            job.id,
            **called,
            status=TaskResultStatus.RUNNING,
            started_at=now,
            last_attempted_at=now,
            worker_ids=[worker] * job.attempt,
        )
        most = application().kinds[job.kind].envelope.max_attempts
        self._last = most is not None and job.attempt >= most

    @property
    def context(self) -> tuple[TaskContext[..., Any], ...]:
        """The task's first argument, if it takes a context."""
        return (TaskContext(task_result=self._result),) if self._result.task.takes_context else ()

    def __enter__(self) -> Self:
        task_started.send(self._sender, task_result=self._result)
        return self

    def __exit__(self, _type: object, raised: BaseException | None, _traceback: object) -> None:
        if raised is None:
            self._finish(TaskResultStatus.SUCCESSFUL)
        elif isinstance(raised, Exception) and self._last:
            self._finish(TaskResultStatus.FAILED)

    def _finish(self, status: Any) -> None:
        object.__setattr__(self._result, "status", status)
        object.__setattr__(self._result, "finished_at", datetime.now(UTC))
        object.__setattr__(self._result, "_return_value", self.value)
        task_finished.send(self._sender, task_result=self._result)


def _result(task: Task[P, R], job_id: int, **known: Any) -> TaskResult[P, R]:
    times = dict.fromkeys(("enqueued_at", "started_at", "finished_at", "last_attempted_at"))
    rest: dict[str, Any] = {"status": TaskResultStatus.READY, "errors": [], "worker_ids": [], **times, **known}
    return TaskResult(task=task, id=str(job_id), **rest)


def _error(task: Task[..., Any], attempt: AttemptLine) -> TaskError:
    """Return the error of an attempt. Only the name of its class is stored, which is looked up in the task's module."""
    code = attempt.error_code or ""
    found = getattr(task.func, "__globals__", {}).get(code) or getattr(builtins, code, None)
    path = f"{found.__module__}.{found.__qualname__}" if isinstance(found, type) else "builtins.Exception"
    return TaskError(exception_class_path=path, traceback=attempt.traceback or f"{code}: {attempt.error}")


def _priority(priority: int) -> int:
    """Map Django's -100 (last) to 100 (first) to Holdfast's 9 (last) to 0 (first), where 0 becomes 5."""
    if priority >= 0:
        return _DEFAULT - ceil(priority * _DEFAULT / _MOST)
    return _DEFAULT + ceil(-priority * (_LOWEST - _DEFAULT) / _MOST)
