"""The features that Holdfast needs from a server, each with a script that tries it, and the server's settings."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from holdfast._store.script import split
from holdfast._store.statement import blocks, one, statement, value

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast._store.statement import Statement


class Trial(NamedTuple):
    """A feature of the server that can be tried."""

    subject: str
    ok: str
    """The feature, in words."""
    without: str
    """Why it is needed."""


TRIALS = (
    Trial("functions", "PL/pgSQL functions with settings and their owner's rights", "every verb is such a function"),
    Trial("tables", "enum types, identity columns, unique indexes over a part of the rows", "jobs are stored in these"),
    Trial("partitions", "partitions can be attached and detached", "history is kept in partitions, one per day"),
    Trial("unlogged tables", "they can be created", "sleeping workers are recorded in one"),
    Trial("skip locked", "FOR NO KEY UPDATE SKIP LOCKED", "two workers would wait for each other's claims"),
    Trial("snapshots", "pg_current_snapshot, pg_visible_in_snapshot", "events committed late would be lost"),
    Trial("identifier", "pg_control_system", "a subscription could not tell that its server was replaced"),
)


class Product(NamedTuple):
    """The server at an address, and the privileges of the current user there."""

    version: str
    in_recovery: bool
    read_only: bool
    encoding: str
    may_create: bool
    may_create_roles: bool
    migrated: bool


def steps(trial: Trial) -> list[str]:
    """Return the statements of a trial. Run them in a transaction, one at a time, and roll it back."""
    scripts = _scripts()
    return [step for name in ("local", "begin", trial.subject.replace(" ", "_")) for step in split(scripts[name])]


def read_product() -> Statement[Product]:
    return statement("read_product", one(Product))


def read_times() -> Statement[dict[str, int]]:
    """Return the timeouts of the server for the current user by name, in milliseconds; 0: none."""
    return statement("read_times", dict)


def read_safety() -> Statement[dict[str, str]]:
    """Return the settings of the server that are `on` by default, by name."""
    return statement("read_safety", dict)


def read_time() -> Statement[datetime]:
    """Return the current time of the server, and not that of the transaction."""
    return statement("read_time", value)


@cache
def _scripts() -> dict[str, str]:
    sql = files("holdfast._store").joinpath("sql")
    trials = {name: script for _, name, script in blocks(sql.joinpath("needs", "trials.sql").read_text("utf-8"))}
    return {"local": sql.joinpath("migrate", "local.sql").read_text("utf-8"), **trials}
