"""Checks every feature that Holdfast needs from a server: `holdfast check --server`."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import ExecStatus

from holdfast._cli import session
from holdfast._cli.pooler import listening, pooling, severed_after
from holdfast._drivers import run_sync
from holdfast._engine.headroom import headroom
from holdfast._engine.link import too_strict
from holdfast._logs.failure import Failure
from holdfast._store.inspect import read_isolation, read_server
from holdfast._store.needs import TRIALS, read_product, read_safety, read_time, read_times, steps
from holdfast._store.schedule import take_singleton
from holdfast._store.schema import missing_roles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast._cli.pooler import CheckResult, Pooling
    from holdfast._cli.session import Database
    from holdfast._model.settings import Settings
    from holdfast._store.needs import Product, Trial

    Connection = psycopg.Connection[Any]

OLDEST, NEWEST = 15, 18
_TRIED = f"Holdfast is tried with PostgreSQL {OLDEST} to {NEWEST}"
# The longest time that a step may take if a pooler gives it no session, in seconds.
_PATIENCE = 15.0
# Shorter timeouts, in milliseconds, interrupt statements that a worker runs, and what then happens.
_SHORT = {
    "statement_timeout": (30_000, "maintenance of large tables is cancelled and tried again"),
    "lock_timeout": (1_000, "a claim or a finish that waits for a lock fails and is tried again"),
    "idle_session_timeout": (60_000, "idle connections of workers are closed, and opened again"),
}
_MOST_SECONDS_APART = 5.0
_LOSES = "a crash of the server loses the last commits, your data and its jobs alike"
_DAMAGES = "a crash of the server can damage the database"
# Settings that are on by default, and what happens where one is off.
_UNSAFE = {
    "autovacuum": "the tables of jobs grow unless you vacuum them",
    "fsync": _DAMAGES,
    "full_page_writes": _DAMAGES,
    "synchronous_commit": _LOSES,
}


def check(database: Database, settings: Settings) -> Iterator[CheckResult]:
    """Check everything that Holdfast needs from this server. It needs no schema, and leaves nothing behind."""
    connect = partial(session.connect, database)
    with connect() as conn, connect() as other, session.translated(conn):
        how = pooling(conn, other)
        yield _address(how)
        product, version = _product(conn)
        yield version
        if product is not None:
            yield _writing(product)
            yield _encoding(product)
            yield _creating(conn, product)
            yield _roles(conn, product)
        for trial in TRIALS:
            yield _tried(conn, trial, migrated=product is not None and product.migrated)
        yield _answered("advisory locks", lambda: _locks(conn, other))
        yield _answered("isolation", lambda: isolation(conn))
        yield _answered("connections", lambda: connections(conn, how, settings))
        yield _answered("listen", lambda: listening(conn, other, how, settings))
        yield _answered("prepared statements", lambda: _prepared(database, other, how))
        yield _answered("timeouts", lambda: _timeouts(conn))
        yield _answered("safety", lambda: _safety(conn))
        yield _answered("clock", lambda: _clock(conn))


def _answered(subject: str, check: Callable[[], CheckResult]) -> CheckResult:
    """Return the result of a check. A check that the server refuses is wrong."""
    try:
        return check()
    except psycopg.Error as error:
        return "wrong", subject, f"the server refused: {Failure.of(error).text}"


def _product(conn: Connection) -> tuple[Product | None, CheckResult]:
    """Return what the server is, or None if it does not even have what describes it, and a verdict on its version."""
    try:
        product = session.run(conn, read_product())
    except psycopg.Error as error:
        return None, ("note", "version", f"not PostgreSQL: {Failure.of(error).text}. {_TRIED}")
    name, major = product.version.partition(",")[0], conn.info.server_version // 10_000
    if not name.startswith("PostgreSQL "):
        return product, ("note", "version", f"{name}: not PostgreSQL itself. {_TRIED}")
    if major < OLDEST:
        return product, ("wrong", "version", f"{name} is too old. {_TRIED}")
    return product, ("ok", "version", name) if major <= NEWEST else ("note", "version", f"{name}. {_TRIED}")


def _address(how: Pooling) -> CheckResult:
    if how == "transaction":
        message = "goes through a pooler in transaction mode: right for producers. Workers need HOLDFAST_LISTEN=false"
        return "note", "address", message
    return "ok", "address", "leads to the server" if how == "none" else "goes through a pooler in session mode"


def _writing(product: Product) -> CheckResult:
    if product.in_recovery or product.read_only:
        return "wrong", "writing", "this server only reads, as a standby does: give the address of the primary"
    return "ok", "writing", "transactions may write"


def _encoding(product: Product) -> CheckResult:
    if product.encoding != "UTF8":
        message = f"the database has {product.encoding}: payloads with other characters are refused. Use one with UTF8"
        return "wrong", "encoding", message
    return "ok", "encoding", "UTF8"


def _creating(conn: Connection, product: Product) -> CheckResult:
    user, database = conn.info.user, conn.info.dbname
    if product.may_create:
        return "ok", "schema", f"{user} may create it"
    if product.migrated:
        return "ok", "schema", f"is there; {user} may not create another"
    return "wrong", "schema", f"{user} may not create it: GRANT CREATE ON DATABASE {database} TO {user}"


def _roles(conn: Connection, product: Product) -> CheckResult:
    absent, user = missing_roles(conn), conn.info.user
    if not absent:
        return "ok", "roles", "all there"
    if product.may_create_roles:
        return "ok", "roles", f"{user} may create them"
    return "note", "roles", f"{user} may not create {', '.join(absent)}: the owner of the schema works without them"


def _tried(conn: Connection, trial: Trial, *, migrated: bool) -> CheckResult:
    try:
        with conn.transaction(force_rollback=True):
            for sql in steps(trial):
                conn.execute(sql.encode(), prepare=False, binary=True)
    except psycopg.errors.InsufficientPrivilege as error:
        if migrated:
            return "ok", trial.subject, f"{trial.ok}: the schema has them"
        return "note", trial.subject, f"not tried: {Failure.of(error).text}"
    except (psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.DuplicateSchema) as error:
        return "note", trial.subject, f"not tried: {Failure.of(error).text}"
    except psycopg.Error as error:
        return "wrong", trial.subject, f"{Failure.of(error).text}: {trial.without}"
    return "ok", trial.subject, trial.ok


def _locks(conn: Connection, other: Connection) -> CheckResult:
    """Take a lock in one transaction, and try to take it in another."""
    with severed_after(other, _PATIENCE), conn.transaction(), other.transaction():
        first = run_sync(conn, take_singleton("holdfast.check"))
        second = run_sync(other, take_singleton("holdfast.check"))
    if not first:
        return "note", "advisory locks", "not tried: another check runs"
    if second:
        message = "two transactions got the same lock: two workers would run one singleton runner, or one migration"
        return "wrong", "advisory locks", message
    return "ok", "advisory locks", "a transaction excludes others until it ends"


def isolation(conn: Connection) -> CheckResult:
    problem = too_strict(session.run(conn, read_isolation()))
    return ("ok", "isolation", "READ COMMITTED by default") if problem is None else ("wrong", "isolation", problem)


def connections(conn: Connection, how: Pooling, settings: Settings) -> CheckResult:
    if how != "none":
        return "ok", "connections", "the pooler decides how many the server gets"
    fits, message = headroom(session.run(conn, read_server()), settings)
    return "ok" if fits == "yes" else "wrong", "connections", message


def _prepared(database: Database, other: Connection, how: Pooling) -> CheckResult:
    """Prepare a statement, and run it while another client holds the session that was used."""
    if how == "none":
        return "ok", "prepared statements", "stay in their session"
    name = f"holdfast_check_{secrets.token_hex(8)}"
    with session.connect(database) as conn, severed_after(conn, _PATIENCE):
        conn.pgconn.prepare(name.encode(), b"SELECT 1")
        with other.transaction():
            other.execute("SELECT 1")
            kept = conn.pgconn.exec_prepared(name.encode(), None).status == ExecStatus.TUPLES_OK
        # The session that was released last is given out first: the one in which it was prepared.
        conn.pgconn.exec_(f"DEALLOCATE {name}".encode())
    if kept:
        return "ok", "prepared statements", "the pooler keeps them"
    message = "the pooler loses them: workers prepare none, and your own connections must not either"
    return "note", "prepared statements", message


def _timeouts(conn: Connection) -> CheckResult:
    found = session.run(conn, read_times())
    short = [
        f"{name} is {found[name]} ms for {conn.info.user}: {effect}"
        for name, (least, effect) in _SHORT.items()
        if 0 < found.get(name, 0) < least
    ]
    if short:
        return "note", "timeouts", "; ".join(short)
    return "ok", "timeouts", ", ".join(f"{name} {ms} ms" for name, ms in found.items() if ms) or "none"


def _safety(conn: Connection) -> CheckResult:
    off: dict[str, list[str]] = {}
    for name, setting in session.run(conn, read_safety()).items():
        if setting in {"off", "local"}:
            off.setdefault(_UNSAFE[name], []).append(name)
    if off:
        return "note", "safety", "; ".join(f"{', '.join(names)} off: {effect}" for effect, names in off.items())
    return "ok", "safety", f"{', '.join(_UNSAFE)}: all on"


def _clock(conn: Connection) -> CheckResult:
    before = datetime.now(UTC)
    there = session.run(conn, read_time())
    now = before + (datetime.now(UTC) - before) / 2
    apart = (there - now).total_seconds()
    if abs(apart) > _MOST_SECONDS_APART:
        which = "ahead of" if apart > 0 else "behind"
        message = f"the server is {abs(apart):.0f} s {which} this machine: jobs are due by the server's clock"
        return "note", "clock", message
    return "ok", "clock", f"{abs(apart):.1f} s from this machine's"
