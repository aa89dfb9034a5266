"""A login that may create in `public` shadows what our statements name, and none of its functions is ever called."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from holdfast import Every
from holdfast._drivers import run_sync
from holdfast._ops.caller import Person, Role
from holdfast._ops.requests import Before, ChainSearch, DeadLetterSearch, JobSearch
from holdfast._ops.service import Service
from holdfast._store.chain import list_chains
from holdfast._store.job import read_chain
from holdfast._store.schema import check, migrate, missing_roles
from tests.kit.commands import holdfast
from tests.kit.pooler import pooler
from tests.kit.shop import Paid, enqueue, make_app, tick
from tests.store.shadows import cast_shadows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Connection = psycopg.Connection[Any]

_numbers = count(1)


@pytest.fixture
def owner(connect: Callable[..., Connection]) -> Connection:
    """As in databases that came from PostgreSQL 14 or older, everybody may create in `public`."""
    conn = connect()
    conn.execute("GRANT CREATE, USAGE ON SCHEMA public TO PUBLIC")
    return conn


@pytest.fixture
def login(owner: Connection, database: str) -> Iterator[Callable[[str], str]]:
    """Return the address of the database for a new member of a role."""
    made: list[str] = []

    def login(role: str) -> str:
        made.append(f"shadowed_{next(_numbers)}")
        owner.execute(f"CREATE ROLE {made[-1]} LOGIN IN ROLE {role}".encode())
        return make_conninfo(database, user=made[-1])

    yield login
    for name in made:
        owner.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}".encode())


@pytest.fixture
def attacker(login: Callable[[str], str]) -> Iterator[Connection]:
    with psycopg.connect(login("holdfast_producer"), autocommit=True) as conn:
        assert cast_shadows(conn) > 5_000
        yield conn


def called(conn: Connection) -> list[str]:
    found = [name for (name,) in conn.execute("SELECT DISTINCT name FROM public.called")]
    conn.execute("DELETE FROM public.called")
    return found


CARELESS = (
    b"SELECT cardinality('{a}'::text[])",
    b"SELECT id FROM holdfast.job WHERE status = 'pending'",
    b"SELECT id FROM holdfast.job WHERE status IN ('pending', 'blocked')",
    b"SELECT 3 * interval '1 day'",
    b"SELECT unnest('{1}'::bigint[])",
    b"SELECT id FROM holdfast.job WHERE status IS DISTINCT FROM 'failed'",
)


@pytest.mark.nightly
def test_a_careless_statement_calls_a_shadow(owner: Connection, attacker: Connection) -> None:
    owner.execute("SELECT holdfast.enqueue('mail')")
    for careless in CARELESS:
        called(attacker)
        owner.execute(careless)
        assert called(attacker) != [], careless


async def work(url: str) -> None:
    """Run everything that a worker does, and a job of each sort to every end."""
    app = make_app(url)
    place: Any = app.kinds["order.place"]
    app.schedule("nightly", place.new(), every=Every(timedelta(seconds=1)))
    paid = app.topics["invoice.paid"]
    async with await psycopg.AsyncConnection.connect(url) as conn, conn.transaction():
        await app.publish(conn, paid.new(Paid(invoice=7), key="7"))
    await tick(app)
    await enqueue(app, "mail.send", "a@example.org", "hush")
    await enqueue(app, "mail.break")
    chain = await enqueue(app, "order.place")
    async with await psycopg.AsyncConnection.connect(url) as conn, conn.transaction():
        await app.publish(conn, paid.new(Paid(invoice=8), key="8"))
    async with app.worker(id="w", queues={"mail": 2, "default": 2}):
        await app.wait(chain, timeout=timedelta(seconds=20))
        await asyncio.to_thread(app.sync.wait, chain, timeout=timedelta(seconds=20))
    await tick(app)


async def look(url: str) -> None:
    """Open every page."""
    async with Service(url, timeout=timedelta(seconds=20)) as desk:
        await desk.record(Person("ann", Role.OPERATOR), "look")
        await desk.overview()
        await desk.stats_queue()
        for page in (desk.queues(), desk.kinds(), desk.workers(), desk.runners(), desk.subscriptions()):
            await page
        await desk.runs("outbox", 10)
        await desk.audit(Before())
        (found, *_) = (await desk.jobs(JobSearch())).items
        await desk.job(found.id)
        await desk.chain(found.id)
        await desk.dead_letters(DeadLetterSearch())
        await desk.chains(ChainSearch())


async def test_a_worker_calls_no_shadow(login: Callable[[str], str], attacker: Connection) -> None:
    await work(login("holdfast_worker"))
    assert called(attacker) == []


@pytest.mark.nightly
async def test_a_worker_behind_a_pooler_calls_no_shadow(
    login: Callable[[str], str], attacker: Connection, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_LISTEN", "false")
    with pooler(server.port) as port:
        await work(make_conninfo(login("holdfast_worker"), port=port))
    assert called(attacker) == []


@pytest.mark.nightly
async def test_an_operator_calls_no_shadow(login: Callable[[str], str], attacker: Connection) -> None:
    with psycopg.connect(login("holdfast_producer")) as conn:
        conn.execute("SELECT holdfast.enqueue('mail')")
    await look(login("holdfast_operator"))
    url = login("holdfast_operator")
    for command in ("jobs", "queues", "runners", "events"):
        output = await asyncio.to_thread(holdfast, command, "list", database=url)
        assert output.status == 0, output
    assert called(attacker) == []


@pytest.mark.nightly
def test_the_owner_calls_no_shadow(owner: Connection, attacker: Connection) -> None:
    migrate(owner)
    check(owner)
    missing_roles(owner)
    chain = owner.execute("SELECT holdfast.enqueue('mail')").fetchone()
    assert chain is not None
    run_sync(owner, read_chain(chain[0]))
    run_sync(owner, list_chains())
    owner.execute("DROP SCHEMA holdfast CASCADE")
    migrate(owner)
    assert called(attacker) == []
