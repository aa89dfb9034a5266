"""Real servers, once for a process of the tests, and a database for each test."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

from examples.invoicing.invoicing.migrate import migrate
from examples.invoicing.tests.site import API_ROLE, Mailbox, Office, Site
from tests.kit.chromium import program
from tools.ports import free_port
from tools.postgres import Server
from tools.seaweedfs import SeaweedFS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TEMPLATE = "invoicing_template"
# Leases of two seconds, so that the jobs of a worker that was killed are not waited for long.
QUICK = {
    "OUTBOX_LEASE_DURATION_MS": "2000",
    "OUTBOX_LEASE_HEARTBEAT_MS": "500",
    "OUTBOX_REAP_INTERVAL_MS": "300",
    "OUTBOX_RETRY_BASE_MS": "50",
    "OUTBOX_RETRY_JITTER_MS": "10",
}


@pytest.fixture(scope="session")
def chromium() -> str:
    return program()


@pytest.fixture(scope="session")
def invoicing_server() -> Iterator[Server]:
    """A PostgreSQL that counts statements, with a database that is migrated."""
    statements = {"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track_utility": "off"}
    with Server(15, **statements) as server:
        with psycopg.connect(server.url(), autocommit=True) as conn:
            conn.execute(sql.SQL("CREATE ROLE {} SUPERUSER LOGIN").format(sql.Identifier(API_ROLE)))
            conn.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(TEMPLATE)))
        with psycopg.connect(server.url(TEMPLATE), autocommit=True) as conn:
            conn.execute("CREATE EXTENSION pg_stat_statements")
        migrate(server.url(TEMPLATE))
        yield server


@pytest.fixture(scope="session")
def object_store() -> Iterator[SeaweedFS]:
    with SeaweedFS() as store:
        yield store


@pytest.fixture(scope="session")
def mailbox() -> Iterator[tuple[Mailbox, str]]:
    mailbox = Mailbox()
    with mailbox.serving(free_port()) as address:
        yield mailbox, address


@pytest.fixture(scope="session")
def make_site(
    invoicing_server: Server, object_store: SeaweedFS, mailbox: tuple[Mailbox, str], chromium: str
) -> Callable[[], Site]:
    """Make a site with a database of its own. It runs nothing yet."""
    numbers = count(1)

    def make() -> Site:
        name = f"invoicing_{next(numbers)}"
        with psycopg.connect(invoicing_server.url(), autocommit=True) as conn:
            create = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy")
            conn.execute(create.format(sql.Identifier(name), sql.Identifier(TEMPLATE)))
        box, smtp = mailbox
        variables = {
            "SMTP_URL": smtp,
            "SESSION_SECRET": "a secret of the tests, of no use elsewhere",
            "INVOICE_STORE_ENDPOINT": object_store.url,
            "INVOICE_BUCKET": name.replace("_", "-"),
            "CHROMIUM": chromium,
            **object_store.environment,
            **QUICK,
        }
        return Site(invoicing_server.url(name), variables, box)

    return make


@pytest.fixture
def site(make_site: Callable[[], Site]) -> Site:
    """A site that runs nothing yet."""
    return make_site()


@pytest.fixture(scope="session")
def running_office(make_site: Callable[[], Site]) -> Iterator[Office]:
    with Office(make_site()) as office:
        yield office


@pytest.fixture
def office(running_office: Office) -> Office:
    """An API and a worker that all tests of this process share."""
    running_office.reset()
    return running_office
