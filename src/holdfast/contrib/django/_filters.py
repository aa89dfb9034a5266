"""Filters of the admin's lists, each backed by an index or a partition. The choices need no query."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.contrib.admin import SimpleListFilter
from django.db.models.functions import Now

from holdfast._engine.runner import BUILT_IN
from holdfast.contrib.django._application import application

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from django.db.models import QuerySet
    from django.http import HttpRequest


class Choice(SimpleListFilter):
    """Filters by one value of a column, out of those that the application defines."""

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


class AliveFilter(SimpleListFilter):
    title = parameter_name = "state"

    def lookups(self, _request: HttpRequest, _model_admin: Any) -> Iterable[tuple[str, str]]:
        return [("live", "not stopped")]

    def queryset(self, _request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(stopped_at=None) if self.value() == "live" else queryset


class EndedFilter(SimpleListFilter):
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
