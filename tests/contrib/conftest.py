from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.core.management import call_command

from tests.kit.databases import clone
from tests.kit.django_config import configure, connected
from tests.kit.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.postgres import Server

configure()  # before a test's module imports a model


@pytest.fixture(scope="session")
def django_template(server: Server) -> Iterator[str]:
    """The name of a database that only Django has migrated."""
    with clone(server, "template0") as database:
        with connected(default=database):
            call_command("migrate", verbosity=0)
        yield database.rpartition("/")[2]


@pytest.fixture
def django_database(server: Server, django_template: str) -> Iterator[str]:
    """Django's default connection leads to a migrated database of the test's own."""
    with clone(server, django_template) as database, connected(default=database):
        yield database


@pytest.fixture
def ledger(django_database: str) -> Iterator[Ledger]:
    with Ledger(django_database) as ledger:
        yield ledger
