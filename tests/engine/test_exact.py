"""A ledger written with `job.complete` stays exact, whatever happens to the workers and their connections."""

from __future__ import annotations

import asyncio
import random
import signal
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from tests.engine import zombie_app
from tests.engine.zombie import Process
from tests.kit.pace import LEASE
from tests.kit.waiting import after, until

if TYPE_CHECKING:
    from tests.kit.ledger import Ledger

pytestmark = pytest.mark.nightly

SEED = 20_261_115


@pytest.mark.parametrize(
    ("jobs", "rounds"), [(150, 2), pytest.param(5_000, 40, marks=pytest.mark.prove)], ids=["short", "long"]
)
async def test_a_ledger_stays_exact_while_workers_die_freeze_and_lose_their_connections(
    ledger: Ledger, database: str, jobs: int, rounds: int
) -> None:
    dice = random.Random(SEED)
    ledger.do("CREATE TABLE entry (job bigint NOT NULL, account text NOT NULL, amount bigint NOT NULL)")
    amounts: dict[int, int] = {}
    async with AsyncExitStack() as stack:
        steady = await stack.enter_async_context(Process("steady", database))
        for turn in range(rounds):
            async with Process(f"dies {turn}", database) as dies, Process(f"freezes {turn}", database) as freezes:
                for amount in range(1, jobs // rounds + 1):
                    job = zombie_app.transfer.new(amount, dice.choice([0, 0, 0.01, 0.3]))
                    amounts[ledger.enqueue_one(job)] = amount
                await until(lambda: ledger.value("SELECT count(*) FROM holdfast.job WHERE status = 'processing'") != 0)
                freezes.send(signal.SIGSTOP)
                await after(dice.uniform(0, 0.1))
                dies.send(signal.SIGKILL)
                terminate(ledger)
                await until(lambda: ledger.value("SELECT count(*) FROM holdfast.job WHERE locked_until < now()") == 0)
                await after(LEASE)
                freezes.send(signal.SIGCONT)
                await asyncio.gather(dies.ended(), freezes.stop())
        await until(lambda: ledger.completed() == len(amounts), 120)
        assert await steady.stop() == 0
    found = ledger.rows("SELECT job, account, sum(amount)::bigint, count(*) FROM entry GROUP BY 1, 2 ORDER BY 1, 2")
    assert found == [
        (job, account, sign * amount, 1)
        for job, amount in sorted(amounts.items())
        for account, sign in (("a", -1), ("b", 1))
    ]
    assert ledger.value("SELECT sum(amount) FROM entry") == 0
    assert ledger.value("SELECT count(*) FROM holdfast.attempt WHERE outcome <> 'completed'") > 0, "nothing happened"


def terminate(ledger: Ledger) -> None:
    """Take every connection away but this one, handlers' included."""
    ledger.do(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
