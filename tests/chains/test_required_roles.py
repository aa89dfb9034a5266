"""A verb names the database role that the user of the connection lacks; with that role it works."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import asyncpg
import psycopg
import pytest
from psycopg import sql
from pydantic import BaseModel

from holdfast import Every, Holdfast, Job, Lease, RoleMissing
from holdfast._app.client import Client
from holdfast._app.roles import ROLES
from holdfast._app.sync import SyncClient
from holdfast._engine.attempt import Attempt
from holdfast._engine.jobs.complete import Completer
from holdfast._engine.link import Links
from holdfast._engine.own_row import OwnRow
from holdfast._engine.session import Session
from holdfast._store.claim import ClaimedJob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


USER = f"test_lacking_{os.getpid()}"
# The role that is nearest to the one that a verb needs, and does not suffice.
NEXT = {
    "holdfast_operator": "holdfast_worker",
    "holdfast_worker": "holdfast_viewer",
    "holdfast_viewer": "holdfast_producer",
    "holdfast_producer": None,
}


class Sale(BaseModel):
    id: int


app = Holdfast()
sold = app.event("sold", Sale)
paid = app.message("paid", Sale)


@app.job("act")
async def act(job: Job[None]) -> str:
    return "done"


def lost_job() -> Job[None]:
    """Return a job that its worker believes to run, and that does not exist."""
    flags = (False, False, False)
    claimed = ClaimedJob(7, 1, "default", "act", None, None, 1, 1, 3, 5, datetime.now(UTC), 7, None, *flags)
    completer = Completer(Session(Links("", name="", timeout=0.0), OwnRow(1)), app.codec)
    return Job(id=7, kind="act", state=None, run=Attempt(claimed, act, Lease(), completer))


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "enqueue": lambda verbs, conn: verbs.enqueue(conn, act.new()),
    "enqueue_many": lambda verbs, conn: verbs.enqueue_many(conn, [act.new()]),
    "enqueue_group": lambda verbs, conn: verbs.enqueue_group(conn, [act.new()], then=act.new()),
    "publish": lambda verbs, conn: verbs.publish(conn, sold.new(Sale(id=7))),
    "publish_many": lambda verbs, conn: verbs.publish_many(conn, [sold.new(Sale(id=7))]),
    "send": lambda verbs, conn: verbs.send(conn, 7, paid, Sale(id=7)),
    "get_job": lambda verbs, conn: verbs.get_job(conn, 7),
    "get_chain": lambda verbs, conn: verbs.get_chain(conn, 7),
    "list_jobs": lambda verbs, conn: verbs.list_jobs(conn),
    "list_chains": lambda verbs, conn: verbs.list_chains(conn),
    "list_schedules": lambda verbs, conn: verbs.list_schedules(conn),
    "list_ticks": lambda verbs, conn: verbs.list_ticks(conn),
    "cancel": lambda verbs, conn: verbs.cancel(conn, 7),
    "retry": lambda verbs, conn: verbs.retry(conn, 7),
    "resume_order_key": lambda verbs, conn: verbs.resume_order_key(conn, "7"),
    "pause_schedule": lambda verbs, conn: verbs.pause_schedule(conn, "7"),
    "resume_schedule": lambda verbs, conn: verbs.resume_schedule(conn, "7"),
    "trigger_schedule": lambda verbs, conn: verbs.trigger_schedule(conn, "7"),
    "edit_schedule": lambda verbs, conn: verbs.edit_schedule(conn, "7", Every(60)),
    "remove_schedule": lambda verbs, conn: verbs.remove_schedule(conn, "7"),
    "delete_chains": lambda verbs, conn: verbs.delete_chains(conn, [7]),
    "complete_chain": lambda verbs, conn: verbs.complete_chain(conn, 7, "done"),
    "complete_many": lambda verbs, conn: verbs.complete_many(conn, {lost_job(): "done"}),
    "reschedule": lambda verbs, conn: verbs.reschedule(conn, 7, delay=60),
    "add_schedule": lambda verbs, conn: verbs.add_schedule(conn, "a", act.new(), every=Every(60)),
    "pause_queue": lambda verbs, conn: verbs.pause_queue(conn, "mail"),
    "resume_queue": lambda verbs, conn: verbs.resume_queue(conn, "mail"),
}


@pytest.fixture
def url(database: str) -> Iterator[str]:
    """Yield the address of the database for a user without any role."""
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(USER)))
        yield database.replace("postgres@", f"{USER}@")
        owner.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(USER)))


def grant(database: str, role: str | None) -> None:
    if role is not None:
        with psycopg.connect(database) as owner:
            owner.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(role), sql.Identifier(USER)))


def test_every_verb_on_a_connection_is_tried() -> None:
    verbs = {name for cls in (Client, SyncClient) for name in vars(cls) if not name.startswith("_")}
    assert set(ROLES) == verbs - {"databases", "has_own_database", "migrate", "url", "wake"}
    assert set(CALLS) == verbs - {"databases", "has_own_database", "migrate", "url", "wake", "wait"}


@pytest.mark.filterwarnings("ignore::holdfast.AutocommitWarning")
@pytest.mark.parametrize("verb", CALLS)
async def test_the_role_is_named_and_suffices(verb: str, database: str, url: str) -> None:
    role = ROLES[verb]
    grant(database, NEXT[role])
    message = rf"{verb}: the user of this connection lacks the database role {role}: .* GRANT {role} TO your_user"
    with psycopg.connect(url, autocommit=True) as conn, pytest.raises(RoleMissing, match=message) as sync_raised:
        CALLS[verb](app.sync, conn)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
        with pytest.raises(RoleMissing, match=message) as raised:
            await CALLS[verb](app, conn)
    assert isinstance(raised.value.__cause__, psycopg.errors.InsufficientPrivilege)
    assert (sync_raised.value.role, raised.value.role) == (role, role)
    assert sync_raised.value.verb == f"app.sync.{verb}"
    grant(database, role)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
        await CALLS[verb](app, conn)


async def test_on_asyncpg_too(database: str, url: str) -> None:
    grant(database, "holdfast_worker")
    conn: Any = await asyncpg.connect(url)
    try:
        with pytest.raises(RoleMissing, match="GRANT holdfast_operator"):
            await app.pause_queue(conn, "mail")
    finally:
        await conn.close()


async def test_any_other_error_is_left_alone(database: str) -> None:
    async with await psycopg.AsyncConnection.connect(database) as conn:
        with pytest.raises(psycopg.errors.SyntaxError):
            await conn.execute("SELEC")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            await app.get_job(conn, 7)
