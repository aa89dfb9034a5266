"""An admin that retries dead letters, controls schedules, and changes nothing else.

No page counts a table or waits longer than seconds.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db import OperationalError, connections, transaction
from django.db.models.functions import Now
from django.http import HttpResponseRedirect
from django.urls import reverse
from psycopg.errors import LockNotAvailable, QueryCanceled

from holdfast._drivers import run_sync
from holdfast._engine.runner import BUILT_IN
from holdfast._ops.caller import Person, Role, audit_entry
from holdfast._store.inspect import MOST, limit_time
from holdfast._store.job import retry_job
from holdfast._store.schedule import pause_schedule, resume_schedule, trigger_schedule
from holdfast.contrib.django._application import application
from holdfast.contrib.django.models import DeadLetter, EndedJob, Job, Run, Schedule, Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import ClassVar

    from django.db.models import QuerySet
    from django.http import HttpRequest, HttpResponse

    from holdfast._store.statement import Statement

    _ModelAdmin = admin.ModelAdmin[Any]
    _Paginator = Paginator[Any]
else:  # generic only for type checkers
    _ModelAdmin = admin.ModelAdmin
    _Paginator = Paginator

SECONDS = 5.0
LARGEST_ID = 2**63 - 1
_DONE = {"pause": "Paused", "resume": "Resumed", "run": "Will run once, soon"}


@contextmanager
def _limited(alias: str) -> Iterator[None]:
    """Limit the time of each query in the block."""
    with transaction.atomic(using=alias):
        run_sync(connections[alias], limit_time(SECONDS, pinned=False))
        yield


def _may(request: HttpRequest, permission: str) -> bool:
    user: Any = request.user  # of any model
    return bool(user.has_perm(f"holdfast.{permission}"))


def _person(request: HttpRequest) -> Person:
    return Person(f"django:{request.user.get_username()}", Role.OPERATOR, f"django user:{request.user.pk}")


class _Pages(_Paginator):
    """Counts no further than the last page that can be shown."""

    object_list: QuerySet[Any]

    @cached_property
    def count(self) -> int:
        return self.object_list[:MOST].count()


class _Newest(ChangeList):
    def get_results(self, request: HttpRequest) -> None:
        with _limited(self.queryset.db):
            super().get_results(request)
            self.result_list: Any = list(self.result_list[: self.list_per_page])


class _ReadOnlyAdmin(_ModelAdmin):
    """Read-only, newest first by the index on id. The search box finds a row by id."""

    actions: Sequence[Any] | None = None
    ordering: ClassVar[tuple[str, ...]] = ("-id",)
    sortable_by = ()
    list_per_page = 100
    list_max_show_all = 0
    show_full_result_count = False
    paginator = _Pages
    search_fields = ("id",)
    search_help_text = "An id"

    def has_add_permission(self, _request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, _request: HttpRequest, _obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, _request: HttpRequest, _obj: Any = None) -> bool:
        return False

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:  # noqa: ARG002 - Django's own
        return _Newest

    def get_search_results(
        self, _request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        if not search_term:
            return queryset, False
        is_id = search_term.isdecimal() and int(search_term) <= LARGEST_ID
        return queryset.filter(pk=int(search_term)) if is_id else queryset.none(), False

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        with _limited(self.get_queryset(request).db):
            return super().get_object(request, object_id, from_field)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        try:
            return super().changelist_view(request, extra_context)
        except OperationalError as error:
            if not isinstance(error.__cause__, QueryCanceled | LockNotAvailable):
                raise
            messages.warning(request, "The answer took too long and was given up: try again, or ask by id.")
            return HttpResponseRedirect(reverse(f"{self.admin_site.name}:app_list", args=("holdfast",)))


class Choice(admin.SimpleListFilter):
    """Filters by one value of a column, out of those that the application defines: without a query, and by an index."""

    parameter_name: str

    def names(self) -> Sequence[str]:
        raise NotImplementedError

    def lookups(self, _request: HttpRequest, _model_admin: Any) -> Iterable[tuple[str, str]]:
        return [(name, name) for name in self.names()]

    def queryset(self, _request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        known = (value := self.value()) in self.names()
        return queryset.filter(**{self.parameter_name: value}) if known else queryset


class StatusFilter(Choice):
    """Scheduled jobs are also pending, but have their own index and so their own choice."""

    title = parameter_name = "status"

    def names(self) -> Sequence[str]:
        return ("pending", "scheduled", "processing", "blocked")

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        match self.value():
            case "pending":
                return queryset.filter(status="pending", later=None)
            case "scheduled":
                return queryset.filter(status="pending", later=True)
            case _:
                return super().queryset(request, queryset)


class KindFilter(Choice):
    title = parameter_name = "kind"

    def names(self) -> Sequence[str]:
        return sorted(application().kinds)


class QueueFilter(Choice):
    title = parameter_name = "queue"

    def names(self) -> Sequence[str]:
        return sorted({kind.envelope.queue for kind in application().kinds.values()})


class RunnerFilter(Choice):
    title = parameter_name = "runner"

    def names(self) -> Sequence[str]:
        return (*BUILT_IN, *application().runners)


class AliveFilter(admin.SimpleListFilter):
    title = parameter_name = "state"

    def lookups(self, _request: HttpRequest, _model_admin: Any) -> Iterable[tuple[str, str]]:
        return [("live", "not stopped")]

    def queryset(self, _request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(stopped_at=None) if self.value() == "live" else queryset


class EndedFilter(admin.SimpleListFilter):
    """The last days, by the table's partition column."""

    title = "time"
    parameter_name = "days"
    column = "finished_at"

    def lookups(self, _request: HttpRequest, _model_admin: Any) -> Iterable[tuple[str, str]]:
        return [("1", "the last day"), ("7", "the last 7 days")]

    def queryset(self, _request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        days = self.value()
        if days not in {"1", "7"}:
            return queryset
        return queryset.filter(**{f"{self.column}__gte": Now() - timedelta(days=int(days))})


class StartedFilter(EndedFilter):
    column = "started_at"


@admin.register(Job)
class JobAdmin(_ReadOnlyAdmin):
    list_display = ("id", "status", "kind", "queue", "priority", "attempt", "available_at", "last_error_code")
    list_filter = (StatusFilter, QueueFilter, KindFilter)


@admin.register(EndedJob)
class EndedJobAdmin(_ReadOnlyAdmin):
    list_display = ("id", "status", "kind", "queue", "attempt", "created_at", "finished_at")
    list_filter = (EndedFilter,)


@admin.register(DeadLetter)
class DeadLetterAdmin(_ReadOnlyAdmin):
    list_display = ("id", "kind", "queue", "attempt", "finished_at", "last_error_code", "last_error")
    list_filter = (EndedFilter,)
    actions = ("retry",)

    def has_retry_permission(self, request: HttpRequest) -> bool:
        return _may(request, "retry_deadletter")

    @admin.action(description="Retry the selected dead letters", permissions=["retry"])
    def retry(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Run them again, in one transaction with the entry in the audit. At most one page."""
        conn, ids = connections[queryset.db], sorted(queryset.values_list("pk", flat=True)[: self.list_per_page])
        person = _person(request)
        with _limited(queryset.db):
            answers = {id_: run_sync(conn, retry_job(id_)).answer for id_ in ids}
            done = [id_ for id_, answer in answers.items() if answer == "retried"]
            run_sync(conn, audit_entry(person, "jobs.retry", jobs=len(done), ids=done))
        for answer, count in Counter(answers.values()).items():
            level = messages.SUCCESS if answer == "retried" else messages.WARNING
            self.message_user(request, f"{answer.replace('_', ' ').capitalize()}: {count}", level)


@admin.register(Schedule)
class ScheduleAdmin(_ReadOnlyAdmin):
    """By name, with what operators do to schedules. A selection is at most one page."""

    ordering = ("name",)
    list_display = ("name", "what", "schedule", "added", "paused", "triggered_at", "next_at", "last_at")
    search_help_text = "A name, or its beginning"
    actions = ("pause", "resume", "trigger")

    def get_search_results(
        self, _request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        return queryset.filter(name__startswith=search_term) if search_term else queryset, False

    @admin.display(boolean=True, description="added at run time")
    def added(self, schedule: Schedule) -> bool:
        return schedule.declared is None

    def has_control_permission(self, request: HttpRequest) -> bool:
        return _may(request, "control_schedule")

    @admin.action(description="Pause the selected schedules", permissions=["control"])
    def pause(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        by = _person(request).name
        self._change(request, queryset, "pause", lambda name: pause_schedule(name, by=by))

    @admin.action(description="Resume the selected schedules", permissions=["control"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        self._change(request, queryset, "resume", resume_schedule)

    @admin.action(description="Run the selected schedules once, soon", permissions=["control"])
    def trigger(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        self._change(request, queryset, "run", trigger_schedule)

    def _change(
        self, request: HttpRequest, queryset: QuerySet[Any], action: str, change: Callable[[str], Statement[bool]]
    ) -> None:
        """Change them in one transaction with their entries in the audit."""
        conn, names = connections[queryset.db], sorted(queryset.values_list("pk", flat=True)[: self.list_per_page])
        with _limited(queryset.db):
            done = [name for name in names if run_sync(conn, change(name))]
            for name in done:
                run_sync(conn, audit_entry(_person(request), f"runner.{action}", target=name))
        self.message_user(request, f"{_DONE[action]}: {len(done)}", messages.SUCCESS)


@admin.register(Worker)
class WorkerAdmin(_ReadOnlyAdmin):
    list_display = ("id", "name", "started_at", "heartbeat_at", "stopped_at", "stop_reason")
    list_filter = (AliveFilter,)


@admin.register(Run)
class RunAdmin(_ReadOnlyAdmin):
    ordering = ("-started_at", "-id")
    list_display = ("id", "runner", "outcome", "started_at", "finished_at", "error_code")
    list_filter = (RunnerFilter, StartedFilter)
