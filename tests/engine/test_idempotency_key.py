"""The idempotency key of a job: the same at every attempt and in every worker, and another one in another database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg

from holdfast import Holdfast, Job, Retry, migrate
from holdfast.testing import Testing
from tests.engine import cpu
from tests.kit.pace import QUICK
from tests.kit.statement import MODES, Document
from tests.kit.waiting import until

if TYPE_CHECKING:
    import pytest

    from tests.kit.ledger import Ledger

modes = Document(MODES)

IDENTITY = "SELECT id FROM holdfast.identity"
CREATED = "SELECT (1000000 * extract(epoch FROM created_at))::bigint FROM holdfast.get_job(%s)"


def key_of(ledger: Ledger, job: int) -> str:
    return f"holdfast:{ledger.value(IDENTITY).hex}:{ledger.value(CREATED, job)}:{job}"


def asking(app: Holdfast, keys: list[str]) -> Any:
    @app.job("ask", retry=Retry(3, base=0, jitter=0))
    async def ask(job: Job[None]) -> None:
        keys.append(job.idempotency_key)
        if job.attempt < 3:
            raise ValueError("again")

    return ask


@modes.states("delivery is at least once: a handler can tell a repetition by a key that is the same at every attempt")
async def test_it_is_the_same_at_every_attempt_and_in_every_worker(app: Holdfast, ledger: Ledger) -> None:
    keys: list[str] = []
    ask = asking(app, keys)
    job = ledger.enqueue_one(ask.new())
    async with app.worker(**QUICK):
        await until(lambda: keys)
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(job) == "completed")
    assert len(keys) >= 3
    assert set(keys) == {key_of(ledger, job)}


async def test_a_process_gives_the_same_key_and_the_kit_one_without_the_time_that_it_moves(
    database: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", database)
    job = ledger.enqueue_one(cpu.key.new())
    async with cpu.app.worker(queues={"default": 1}, **QUICK):
        await until(lambda: ledger.status(job) == "completed")
    assert ledger.job(job).result == key_of(ledger, job)
    with psycopg.connect(database) as conn:
        ran = Testing(cpu.app, conn).sync.run_job(cpu.key.new())
    assert ran.result == f"holdfast:{ledger.value(IDENTITY).hex}:{ran.id}"


def test_every_new_schema_has_another_identity(ledger: Ledger) -> None:
    before = ledger.value(IDENTITY)
    migrate(ledger.conn)
    assert ledger.value(IDENTITY) == before, "migrating again changes nothing"
    ledger.do("DROP SCHEMA holdfast CASCADE")
    migrate(ledger.conn)
    assert ledger.value(IDENTITY) != before


async def test_a_copy_can_be_given_an_identity_of_its_own(app: Holdfast, ledger: Ledger) -> None:
    keys: list[str] = []
    ask = asking(app, keys)
    before = ledger.value(IDENTITY)
    ledger.do("UPDATE holdfast.identity SET id = gen_random_uuid()")
    job = ledger.enqueue_one(ask.new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(job) == "completed")
    assert set(keys) == {key_of(ledger, job)}
    assert before.hex not in keys[0]


async def test_without_its_row_the_key_still_names_the_job(app: Holdfast, ledger: Ledger) -> None:
    keys: list[str] = []
    ask = asking(app, keys)
    ledger.do("DELETE FROM holdfast.identity")
    job = ledger.enqueue_one(ask.new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(job) == "completed")
    assert set(keys) == {f"holdfast:{ledger.value(CREATED, job)}:{job}"}
