from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection, connections
from django.db.migrations.loader import MigrationLoader

from holdfast._store import schema
from holdfast.contrib.django._application import BringUpToDate
from holdfast.contrib.django.models import Job
from tests.contrib.book.application import app, new
from tests.kit.databases import clone
from tests.kit.django_config import connected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.postgres import Server


@pytest.fixture
def empty(server: Server) -> Iterator[str]:
    with clone(server, "template0") as database, connected(orders=database):
        yield database


def check(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        schema.check(conn)


def test_djangos_migrate_brings_our_schema(django_database: str) -> None:
    check(django_database)


def test_the_newest_django_migration_reaches_the_newest_of_ours(django_database: str) -> None:
    """Or `manage.py migrate` would not do after an upgrade.

    Where this fails, add to holdfast/contrib/django/migrations a migration whose only operation is
    BringUpToDate(the newest), atomic = False, depending on the last one.
    """
    loader = MigrationLoader(connection)
    [leaf] = loader.graph.leaf_nodes("holdfast")
    operations = loader.get_migration(*leaf).operations
    [newest] = [operation.newest for operation in operations if isinstance(operation, BringUpToDate)]
    assert newest == schema.migrations()[-1].name
    assert not loader.get_migration(*leaf).atomic


def test_it_is_there_for_any_alias_that_is_migrated(empty: str) -> None:
    call_command("migrate", database="orders", verbosity=0)
    check(empty)


def test_a_database_that_is_not_postgresql_is_passed_over() -> None:
    with connected():
        connections["other"].settings_dict["NAME"] = ":memory:"
        call_command("migrate", "holdfast", database="other", verbosity=0)


def test_undone_it_loses_no_job_and_can_be_done_again(django_database: str) -> None:
    app.sync.enqueue(connection, new("book.print"))
    call_command("migrate", "holdfast", "zero", verbosity=0)
    assert Job.objects.count() == 1
    call_command("migrate", "holdfast", verbosity=0)
    assert Job.objects.count() == 1
    check(django_database)


def test_django_finds_nothing_to_add(django_database: str) -> None:
    output = StringIO()
    call_command("makemigrations", "--check", "--dry-run", stdout=output)
    assert "No changes detected" in output.getvalue()
    call_command("check", databases=["default"])
