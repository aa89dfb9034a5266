"""Brings the schema up to date: keeping a retention that was set at run time, and files with lost rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import migrations

from holdfast.contrib.django._application import BringUpToDate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import ClassVar

    from django.db.migrations.operations.base import Operation


class Migration(migrations.Migration):
    atomic = False
    dependencies: ClassVar[Sequence[tuple[str, str]]] = (("holdfast", "0003_moving"),)
    operations: ClassVar[Sequence[Operation]] = (BringUpToDate("0018_archive_keeps"),)
