"""What the admin's lists can be narrowed by: what an index or a partition knows. The choices are asked of no table."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.contrib.admin import SimpleListFilter
from django.db.models.functions import Now

from holdfast.contrib.django.application import application
from holdfast.engine.runner import BUILT_IN

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from django.db.models import QuerySet
    from django.http import HttpRequest


class Choice(SimpleListFilter):
    """One value of a column, of those that the application knows."""

    parameter_name: str

    def names(self) -> Sequence[str]:
        raise NotImplementedError

    def lookups(self, _request: HttpRequest, _model_admin: Any) -> Iterable[tuple[str, str]]:
        return [(name, name) for name in self.names()]

    def queryset(self, _request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        known = (value := self.value()) in self.names()
        return queryset.filter(**{self.parameter_name: value}) if known else queryset


class Status(Choice):
    """Scheduled jobs are pending too; they have a choice of their own, as they have an index of their own."""

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


class Kind(Choice):
    title = parameter_name = "kind"

    def names(self) -> Sequence[str]:
        return sorted(application().kinds)


class Queue(Choice):
    title = parameter_name = "queue"

    def names(self) -> Sequence[str]:
        return sorted({kind.envelope.queue for kind in application().kinds.values()})


class Runner(Choice):
    title = parameter_name = "runner"

    def names(self) -> Sequence[str]:
        return (*BUILT_IN, *application().runners)


class Alive(SimpleListFilter):
    title = parameter_name = "state"

    def lookups(self, _request: HttpRequest, _model_admin: Any) -> Iterable[tuple[str, str]]:
        return [("live", "not stopped")]

    def queryset(self, _request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(stopped_at=None) if self.value() == "live" else queryset


class Ended(SimpleListFilter):
    """The last days, by the column that a table is partitioned by."""

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


class Started(Ended):
    column = "started_at"
