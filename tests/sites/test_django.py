"""The site on Django, served by its own server, and worked for by `manage.py holdfast`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kit.databases import clone
from tests.sites.serving import Site, command, pending, rows
from tools.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kit.commands import Output
    from tools.postgres import Server

pytestmark = pytest.mark.nightly

SITE = "django_site"


def manage(*arguments: str, database: str) -> Output:
    return command(SITE, "manage.py", *arguments, database=database)


@pytest.fixture
def database(server: Server) -> Iterator[str]:
    """A database that Django alone has migrated."""
    with clone(server, "template0") as database:
        output = manage("migrate", database=database)
        assert output.status == 0, output.err
        yield database


def test_an_order_and_its_job_are_committed_or_rolled_back_together(database: str) -> None:
    served = ("manage.py", "runserver", "--noreload", f"127.0.0.1:{free_port()}")
    with Site(SITE, *served, database=database) as site:
        assert site.post("/orders", address="eve@example.org", card="declined")[0] == 409
        assert (pending(database), rows(database, "SELECT * FROM shop_order")) == ([], [])
        status, answer = site.post("/orders", address="ada@example.org")
        assert (status, pending(database)) == (201, [answer["id"]])
        ticked = manage("holdfast", "tick", "--json", database=database)
        assert ticked.status == 0, ticked.err
        assert ticked.json["runners"][0]["counts"]["completed"] == 1
        site.until_sent(answer["id"])
        status, page = site.get("/admin/")
        assert (status, "Log in" in page) == (200, True)


def test_the_site_passes_its_own_tests(database: str) -> None:
    output = manage("test", database=database)
    assert output.status == 0, output.err
    assert "Ran 2 tests" in output.err
