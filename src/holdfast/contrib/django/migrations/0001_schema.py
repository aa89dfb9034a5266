"""The schema, and the names of its models. Django does not compare the columns of unmanaged tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import migrations, models

from holdfast.contrib.django._application import BringUpToDate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import ClassVar, TypeAlias

    from django.db.migrations.operations.base import Operation

    _Key: TypeAlias = tuple[str, models.Field[Any, Any]]

_MODELS = {
    "Job": ("job", "job"),
    "EndedJob": ("ended job", "job_history"),
    "DeadLetter": ("dead letter", "job_failed"),
    "Schedule": ("schedule", "schedule"),
    "Worker": ("worker", "worker"),
    "Run": ("run", "run"),
}
_PERMISSIONS = {
    "DeadLetter": [("retry_deadletter", "Can retry dead letters")],
    "Schedule": [("control_schedule", "Can pause, resume and trigger schedules")],
}
_ID: _Key = ("id", models.BigIntegerField(primary_key=True, serialize=False))
_KEYS: dict[str, _Key] = {"Schedule": ("name", models.TextField(primary_key=True, serialize=False))}


class Migration(migrations.Migration):
    initial = True
    atomic = False
    dependencies: ClassVar[Sequence[tuple[str, str]]] = ()
    operations: ClassVar[Sequence[Operation]] = (
        BringUpToDate("0001_schema"),
        *(
            migrations.CreateModel(
                name=model,
                fields=[_KEYS.get(model, _ID)],
                options={
                    "verbose_name": words,
                    "db_table": f'"holdfast"."{table}"',
                    "managed": False,
                    "default_permissions": ("view",),
                    **({"permissions": _PERMISSIONS[model]} if model in _PERMISSIONS else {}),
                },
            )
            for model, (words, table) in _MODELS.items()
        ),
    )
