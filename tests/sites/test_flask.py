"""The site on Flask, served by its own server, and worked for by `flask holdfast`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kit.databases import clone
from tests.sites.serving import Site, command, pending, rows

if TYPE_CHECKING:
    from tests.kit.commands import Output
    from tools.postgres import Server

pytestmark = pytest.mark.nightly

SITE = "flask_site"
FLASK = ("-m", "flask", "--app", "shop")


def flask(*arguments: str, database: str) -> Output:
    return command(SITE, *FLASK, *arguments, database=database)


def test_an_order_and_its_job_are_committed_or_rolled_back_together(server: Server) -> None:
    with clone(server, "template0") as database:
        for arguments in (["tables"], ["holdfast", "migrate"]):
            output = flask(*arguments, database=database)
            assert output.status == 0, output
        with Site(SITE, *FLASK, "run", "--port", "0", database=database) as site:
            assert site.post("/orders", address="eve@example.org", card="declined")[0] == 409
            assert (pending(database), rows(database, "SELECT * FROM orders")) == ([], [])
            status, answer = site.post("/orders", address="ada@example.org")
            assert (status, pending(database)) == (201, [answer["id"]])
            ticked = flask("holdfast", "tick", "--json", database=database)
            assert ticked.status == 0, ticked.err
            assert ticked.json["runners"][0]["counts"]["completed"] == 1
            site.until_sent(answer["id"])
