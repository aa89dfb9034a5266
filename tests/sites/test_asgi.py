"""The sites on FastAPI and on Starlette, served by uvicorn."""

from __future__ import annotations

import pytest

from tests.sites.serving import Site, command, pending, rows

UVICORN = ("-m", "uvicorn", "shop:web", "--port", "0")


@pytest.fixture(params=["fastapi_site", "starlette_site"])
def name(request: pytest.FixtureRequest, database: str) -> str:
    if request.param == "starlette_site":
        output = command(request.param, "-c", f"import psycopg; {CREATE}", database=database)
        assert output.status == 0, output.err
    return str(request.param)


CREATE = "psycopg.connect('', autocommit=True).execute(open('orders.sql').read())"


@pytest.mark.nightly
def test_an_order_and_its_job_are_committed_or_rolled_back_together(name: str, database: str) -> None:
    with Site(name, *UVICORN, database=database) as site:
        assert site.post("/orders", address="eve@example.org", card="declined")[0] == 409
        assert (pending(database), rows(database, "SELECT * FROM orders")) == ([], [])
        status, answer = site.post("/orders", address="ada@example.org")
        assert status == 201
        assert pending(database) == [answer["id"]]
        assert site.get(f"/orders/{answer['id']}") == (200, {"receipt": None})
        assert rows(database, "SELECT count(*) FROM holdfast.worker") == [(0,)], "no worker unless it is asked for"
        ticked = command(name, "-m", "holdfast", "tick", "shop:app", database=database)
        assert ticked.status == 0, ticked.err
        site.until_sent(answer["id"])


@pytest.mark.nightly(daily=["fastapi_site"])
@pytest.mark.parametrize(
    "name", ["fastapi_site", pytest.param("starlette_site", marks=pytest.mark.prove)], indirect=True
)
def test_the_embedded_worker_runs_what_the_site_enqueues(name: str, database: str) -> None:
    with Site(name, *UVICORN, database=database, HOLDFAST_WORKER_ENABLED="true") as site:
        _, answer = site.post("/orders", address="ada@example.org")
        site.until_sent(answer["id"])
    assert rows(database, "SELECT stop_reason FROM holdfast.worker") == [("stopped",)]
