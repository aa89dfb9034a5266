"""The schema, and the names of its models. Django does not compare the columns of unmanaged tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import migrations, models

from holdfast.contrib.django._application import BringUpToDate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import ClassVar

    from django.db.migrations.operations.base import Operation

_MODELS = {
    "Job": ("job", "job"),
    "EndedJob": ("ended job", "job_history"),
    "DeadLetter": ("dead letter", "job_failed"),
    "Worker": ("worker", "worker"),
    "Run": ("run", "run"),
}


class Migration(migrations.Migration):
    initial = True
    atomic = False
    dependencies: ClassVar[Sequence[tuple[str, str]]] = ()
    operations: ClassVar[Sequence[Operation]] = (
        BringUpToDate("0001_schema"),
        *(
            migrations.CreateModel(
                name=model,
                fields=[("id", models.BigIntegerField(primary_key=True, serialize=False))],
                options={
                    "verbose_name": words,
                    "db_table": f'"holdfast"."{table}"',
                    "managed": False,
                    "default_permissions": ("view",),
                    **(
                        {"permissions": [("retry_deadletter", "Can retry dead letters")]}
                        if model == "DeadLetter"
                        else {}
                    ),
                },
            )
            for model, (words, table) in _MODELS.items()
        ),
    )
