"""Models of the schema's tables, for Django's admin and for queries. Nothing is written through them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models

if TYPE_CHECKING:
    _Field = models.Field[Any, Any]
    _JSONField = models.JSONField[Any, Any]
else:  # generic only for type checkers
    _Field = models.Field
    _JSONField = models.JSONField


class Json(_JSONField):
    """A column of type json, already parsed by the driver."""

    def from_db_value(self, value: Any, _expression: object, _connection: object) -> Any:
        return value


class Texts(_Field):
    """A column of type text[]."""


def _table(name: str, verbose_name: str, **more: Any) -> Any:
    """Return the options of a model: Django neither creates nor changes its table."""
    options = {"managed": False, "default_permissions": ("view",), "verbose_name": verbose_name, **more}
    return type("Meta", (), {"db_table": f'"holdfast"."{name}"', **options})


class Work(models.Model):
    """The fields that live and ended jobs share."""

    id = models.BigIntegerField(primary_key=True)
    kind = models.TextField()
    queue = models.TextField()
    status = models.TextField()
    priority = models.SmallIntegerField()
    attempt = models.SmallIntegerField()
    max_attempts = models.SmallIntegerField(null=True)
    created_at = models.DateTimeField()
    available_at = models.DateTimeField()
    order_key = models.TextField(null=True)
    unique_key = models.TextField(null=True)
    chain_id = models.BigIntegerField(null=True)
    replay_of = models.BigIntegerField(null=True)
    last_error_code = models.TextField(null=True)
    last_error = models.TextField(null=True)
    payload = Json(null=True)
    headers = Json(null=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.kind} {self.pk}"


class Job(Work):
    """A live job."""

    later = models.BooleanField(null=True)
    expires_at = models.DateTimeField(null=True)
    cancel_requested_at = models.DateTimeField(null=True)
    locked_by = models.BigIntegerField(null=True)
    locked_until = models.DateTimeField(null=True)

    Meta = _table("job", "job")


class Ended(Work):
    """The fields that all ended jobs share."""

    finished_at = models.DateTimeField()
    worker_id = models.BigIntegerField(null=True)
    ran_ms = models.IntegerField(null=True)

    class Meta:
        abstract = True


class EndedJob(Ended):
    """A job that completed or was cancelled."""

    result = Json(null=True)

    Meta = _table("job_history", "ended job")


class DeadLetter(Ended):
    """A job that failed."""

    Meta = _table("job_failed", "dead letter", permissions=[("retry_deadletter", "Can retry dead letters")])


class Schedule(models.Model):
    """When a runner or a periodic job runs next."""

    name = models.TextField(primary_key=True)
    what = models.TextField()
    schedule = models.TextField()
    declared = models.TextField(null=True)
    missed = models.TextField()
    job = Json(null=True)
    paused = models.BooleanField()
    paused_at = models.DateTimeField(null=True)
    paused_by = models.TextField(null=True)
    paused_reason = models.TextField(null=True)
    triggered_at = models.DateTimeField(null=True)
    next_at = models.DateTimeField(null=True)
    last_at = models.DateTimeField(null=True)
    locked_by = models.BigIntegerField(null=True)
    locked_until = models.DateTimeField(null=True)

    Meta = _table("schedule", "schedule", permissions=[("control_schedule", "Can pause, resume and trigger schedules")])

    def __str__(self) -> str:
        return f"{self.name}"


class Worker(models.Model):
    """A worker process, live or stopped."""

    id = models.BigIntegerField(primary_key=True)
    name = models.TextField()
    host = models.TextField(null=True)
    pid = models.IntegerField(null=True)
    version = models.TextField(null=True)
    started_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField()
    reaped_at = models.DateTimeField(null=True)
    stopped_at = models.DateTimeField(null=True)
    stop_reason = models.TextField(null=True)
    queues = Texts()
    kinds = Texts()
    counters = Json(null=True)

    Meta = _table("worker", "worker")

    def __str__(self) -> str:
        return f"{self.name}"


class Run(models.Model):
    """One tick of a runner that did something or took long."""

    id = models.BigIntegerField(primary_key=True)
    runner = models.TextField()
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)
    worker_id = models.BigIntegerField(null=True)
    outcome = models.TextField(null=True)
    counts = Json(null=True)
    error_code = models.TextField(null=True)
    error = models.TextField(null=True)

    Meta = _table("run", "run")

    def __str__(self) -> str:
        return f"{self.runner} {self.pk}"
