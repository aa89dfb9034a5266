"""A worker releases the jobs that wait for one chain in portions, while other jobs go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast._app.app import application_of
from holdfast._engine.once import run_tick
from tests.kit.fleet import fast
from tests.kit.pace import PATIENT, ms
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    from holdfast import Holdfast, Job
    from tests.kit.ledger import Ledger

WAITERS = 5_000


async def test_others_run_while_many_are_released(app: Holdfast, ledger: Ledger) -> None:
    @app.job("awaited")
    async def awaited(job: Job[None]) -> int:
        return 7

    @app.job("innocent")
    async def innocent(job: Job[None]) -> None: ...

    @app.job("waits")
    async def waits(job: Job[None]) -> None: ...

    chain = ledger.enqueue_one(awaited.new())
    for _ in range(5):
        ledger.enqueue(*[waits.new().options(after=[chain], queue="elsewhere") for _ in range(WAITERS // 5)])
    blocked = "SELECT count(*) FROM holdfast.job WHERE status = 'blocked'"
    # Its turn to reap does not come again: it is woken.
    async with app.worker(**PATIENT | {"reap_interval": ms(59_000)}):
        await until(lambda: ledger.status(chain) == "completed")
        others = ledger.enqueue(*[innocent.new() for _ in range(20)])
        await until(lambda: all(ledger.status(job) == "completed" for job in others), 10)
        await until(lambda: ledger.value(blocked) == 0, 40)
    assert ledger.value("SELECT count(*) FROM holdfast.job WHERE status = 'pending'") == WAITERS
    assert ledger.value("SELECT released_to FROM holdfast.kept_end") == 0


async def test_one_pass_runs_all_that_waited(app: Holdfast, ledger: Ledger) -> None:
    @app.job("awaited")
    async def awaited(job: Job[None]) -> int:
        return 7

    seen: list[int] = []

    @app.job("waits")
    async def waits(job: Job[None]) -> None:
        seen.append(awaited.result(job.blockers[0]))

    chain = ledger.enqueue_one(awaited.new())
    ledger.enqueue(*[waits.new().options(after=[chain]) for _ in range(1_001)])
    await run_tick(application_of(app, fast(tick_runners=("outbox",), tick_runner_max_items=5_000)))
    assert seen == [7] * 1_001


async def test_a_waiter_that_was_locked_is_released_soon(
    app: Holdfast, ledger: Ledger, connect: Callable[..., psycopg.Connection[Any]]
) -> None:
    @app.job("awaited")
    async def awaited(job: Job[None]) -> int:
        return 7

    @app.job("waits")
    async def waits(job: Job[None]) -> None: ...

    chain = ledger.enqueue_one(awaited.new())
    for _ in range(5):
        made = ledger.enqueue(*[waits.new().options(after=[chain], queue="elsewhere") for _ in range(WAITERS // 5)])
    blocked = "SELECT count(*) FROM holdfast.job WHERE status = 'blocked'"
    other = connect()
    other.execute("BEGIN")
    other.execute("SELECT FROM holdfast.job WHERE id = %s FOR UPDATE", [made[3]])
    async with app.worker(**PATIENT | {"reap_interval": ms(59_000)}):
        await until(lambda: ledger.value(blocked) == 1)
        other.execute("ROLLBACK")
        await until(lambda: ledger.value(blocked) == 0, 20)
