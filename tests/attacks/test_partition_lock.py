"""Somebody tries to stop partitions from being made, and workers from starting, by holding a lock."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

from holdfast._engine.runner import Budget, Tick
from holdfast._engine.runners.database import open_runner_database
from holdfast._engine.runners.maintenance import Maintenance
from holdfast._model.errors import HoldfastError
from tests.kit.pace import QUICK

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast import Holdfast
    from tests.kit.ledger import Ledger

    Connection = psycopg.Connection[Any]

LAST = "SELECT max(relname) FROM pg_class WHERE relname ~ '^run_[0-9]{8}$'"
LOCK = "LOCK TABLE holdfast.migration IN SHARE UPDATE EXCLUSIVE MODE"


@pytest.fixture
def missing(ledger: Ledger) -> str:
    """Drop the last day of a family, as if a day had passed; return its name."""
    last: str = ledger.value(LAST)
    ledger.do(f"DROP TABLE holdfast.{last}")
    ledger.do("ALTER FUNCTION holdfast.ensure_partitions SET lock_timeout = '200ms'")
    return last


async def test_an_advisory_lock_of_another_program_blocks_no_partition(
    app: Holdfast, ledger: Ledger, stranger: Connection, missing: str
) -> None:
    stranger.execute("SELECT pg_advisory_lock(hashtext('holdfast.partitions'), 0)")
    async with app.worker(**QUICK):
        assert ledger.value(LAST) == missing


@pytest.mark.parametrize("role", ["holdfast_producer", "holdfast_worker", "holdfast_viewer", "holdfast_operator"])
def test_no_role_takes_the_lock_itself(ledger: Ledger, stranger: Connection, role: str) -> None:
    grant = sql.SQL("GRANT {} TO {}").format(sql.Identifier(role), sql.Identifier(stranger.info.user))
    ledger.conn.execute(grant)
    with pytest.raises(psycopg.errors.InsufficientPrivilege), stranger.transaction():
        stranger.execute(LOCK)


async def test_a_session_that_is_in_the_way_is_named_and_the_next_tick_goes_on(
    database: str, ledger: Ledger, connect: Callable[..., Connection], missing: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The owner of the schema can lock whatever it likes, and may forget that it did."""
    owner = connect()
    async with open_runner_database(database, name="test", seconds=30.0) as site:
        maintenance = Maintenance(site)
        with owner.transaction():
            owner.execute(LOCK)
            with pytest.raises(HoldfastError, match=r"partitions_made: .*lock timeout"):
                await maintenance.tick(Tick(name="maintenance", budget=Budget()))
        [reply] = [line.getMessage() for line in caplog.records if line.levelno == logging.WARNING]
        assert reply.startswith("partitions could not be made: a session holds a lock: ")
        assert f"pid={owner.info.backend_pid} role={owner.info.user} " in f"{reply} "
        assert (await maintenance.tick(Tick(name="maintenance", budget=Budget())))["partitions_made"] == 1
    assert ledger.value(LAST) == missing
