"""Sleeping workers are woken; working ones are not notified."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from typing import TYPE_CHECKING, Any, cast

import psycopg
import pytest

from holdfast import Holdfast, Job
from holdfast._engine.jobs import claim
from holdfast._engine.jobs.named import MANY_JOBS
from holdfast._engine.wake import sleep as sleep_record
from holdfast._store import claim as floor
from holdfast._store.statement import statements
from tests.engine.interleaving import LEVELS, Producer
from tests.kit.databases import clone, create_template
from tests.kit.mutation import open_trap
from tests.kit.pace import MINUTE, QUICK, ms
from tests.kit.waiting import Stopwatch, after, serving, until
from tools.postgres import Server

if TYPE_CHECKING:
    from holdfast._store.statement import Statement
    from tests.kit.ledger import Ledger
    from tools.pgbouncer import PgBouncer

ASLEEP = "SELECT count(DISTINCT worker_id) FROM holdfast.sleeper WHERE until > now()"


@pytest.fixture(autouse=True)
def _sound_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep workers from waking up because the record of a sleeper ends, as it does after ten seconds."""
    monkeypatch.setattr(sleep_record, "RECORD_SECONDS", 60.0)
    monkeypatch.setattr(claim, "RENEWED_AFTER", 59.0)
    record = statements()["record_sleep"]
    assert "10 seconds" in record
    monkeypatch.setitem(
        cast("dict[str, str]", statements()), "record_sleep", record.replace("10 seconds", "60 seconds")
    )


@pytest.mark.nightly(daily=["150 at each level-anew"])
@pytest.mark.parametrize("sleep", ["anew", "on"])
@pytest.mark.parametrize("rounds", [150, pytest.param(3_334, marks=pytest.mark.prove)], ids="{} at each level".format)
async def test_no_wake_up_is_lost(database: str, monkeypatch: pytest.MonkeyPatch, rounds: int, sleep: str) -> None:
    monkeypatch.setattr(claim, "LINGER_FOR", 0.0)  # fall asleep as often as possible
    if sleep == "anew":
        monkeypatch.setattr(claim.Claimer, "_may_sleep_on", lambda _self: False)
    ran: set[int] = set()
    app = Holdfast(database)

    async def act(job: Job[None]) -> None:
        ran.add(job.id)

    kinds = [app.job(f"act.{number}", queue=f"q{number}")(act) for number in range(len(LEVELS))]
    producers = [Producer(database, kind.new, ran, seed) for seed, kind in enumerate(kinds)]
    async with asyncio.TaskGroup() as group:
        for number, (producer, level) in enumerate(zip(producers, LEVELS, strict=True)):
            # Each level has a worker of its own, or the others' traffic would wake it.
            worker = app.worker(id=f"w{number}", queues={f"q{number}": 5}, **MINUTE)
            group.create_task(serve(worker, producer.produce(rounds, level=level, patience=20)))
    assert [late for producer in producers for late in producer.late] == []
    assert sum(producer.count for producer in producers) == rounds * len(LEVELS)


async def serve(worker: Any, production: Any) -> None:
    async with worker:
        await production


async def test_a_loss_would_show(app: Holdfast, ledger: Ledger) -> None:
    """Without the wake-up the job waits: it was no polling that made the others start."""

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    async with app.worker(**MINUTE):
        await until(lambda: ledger.value(ASLEEP))
        job = ledger.enqueue_one(act.new())
        await until(lambda: ledger.status(job) == "completed")
        ledger.do(
            "CREATE OR REPLACE FUNCTION holdfast.wake_sleepers(queues text[], kinds text[]) RETURNS void "
            "LANGUAGE plpgsql VOLATILE AS $$ BEGIN END $$"
        )
        await until(lambda: ledger.value(ASLEEP))
        await after(2.5)  # so that the second look and the light sleep are over
        job = ledger.enqueue_one(act.new())
        with pytest.raises(AssertionError):
            await until(lambda: ledger.status(job) == "completed", 1.5)


async def test_a_worker_that_has_started_listens(app: Holdfast) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    async with app.worker(**MINUTE) as worker:
        assert serving(worker).session.listening.is_set()


async def test_a_sleeper_whose_claim_had_no_time_left_claims_again(
    app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job that its claim left is due, and no other notification comes."""
    monkeypatch.setattr(floor.Floors, "widest_due", math.inf)  # it does not look for jobs that were committed late
    with psycopg.connect(ledger.url, autocommit=True) as conn:
        open_trap(conn, "claim_jobs", ("interval '200 milliseconds'", "interval '-1 second'"))
    gate = asyncio.Event()

    @app.job("act")
    async def act(job: Job[None], wait: bool) -> None:
        if wait:
            await gate.wait()

    async with app.worker(queues={"default": 3}, **MINUTE) as worker:
        claimer = serving(worker).claimer
        await until(lambda: claimer._recorded.seen and not claimer._link.busy)  # it sleeps soundly
        keyed = [act.new(wait=True).options(order_key="a") for _ in range(8)]
        ledger.enqueue(*keyed, act.new(wait=False))
        await until(lambda: ledger.completed() == 1)
        gate.set()


async def test_a_sleeper_gives_back_at_once_what_another_loop_claimed_without_an_answer(
    app: Holdfast, ledger: Ledger
) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    async with app.worker(**MINUTE) as worker:
        claimer = serving(worker).claimer
        await until(lambda: claimer._recorded.seen and not claimer._link.busy)
        with psycopg.connect(ledger.url) as conn:
            app.sync.enqueue(conn, act.new())
            conn.execute(
                "UPDATE holdfast.job SET status = 'processing', locked_by = %s, "
                "lock_token = nextval('holdfast.token'), locked_until = now() + interval '1 hour'",
                [claimer._row.id],
            )
        claims = claimer.claims
        await until(lambda: claimer.claims > claims and not claimer._link.busy)  # the notification found nothing
        claimer.recover_soon()
        await until(lambda: ledger.completed() == 1)


async def count_notifications(app: Holdfast, ledger: Ledger, jobs: int, **worker_options: Any) -> int:
    """Enqueue one by one, as fast as two producers can, while a worker works; return how often anyone was notified."""
    act: Any = app.kinds["act"]
    notified = 0

    def produce() -> None:
        with psycopg.connect(ledger.url, autocommit=True) as conn:
            for _ in range(jobs // 2):
                app.sync.enqueue(conn, act.new())

    async with app.worker(**worker_options, **QUICK) as worker:
        with psycopg.connect(ledger.url, autocommit=True) as ear:
            ear.execute("LISTEN holdfast")
            ear.execute(f"LISTEN holdfast_{worker.pipelines[0].worker}".encode())
            threads = [threading.Thread(target=produce) for _ in range(2)]
            for thread in threads:
                thread.start()
            await until(lambda: not any(thread.is_alive() for thread in threads), 120)
            ear.execute("SELECT 1")
            notified = sum(1 for _ in ear.notifies(timeout=0.05))
            await until(lambda: worker.counts.get("job_completed", 0) == jobs, 120)
    return notified


@pytest.mark.nightly(daily=["3000-keeping up"])
@pytest.mark.parametrize("pace", ["falling behind", "keeping up"])
@pytest.mark.parametrize("jobs", [3_000, pytest.param(10_000, marks=pytest.mark.prove)])
async def test_under_load_hardly_anybody_is_notified(app: Holdfast, ledger: Ledger, pace: str, jobs: int) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None:
        if pace == "falling behind":
            await asyncio.sleep(0.005)

    slots = 6 if pace == "falling behind" else 100
    # The least of three: while a producer stands still the worker falls asleep, and who sleeps is woken.
    notified, most = [jobs], 2 * MANY_JOBS + jobs // 100
    while min(notified) > most and len(notified) <= 3:
        notified.append(await count_notifications(app, ledger, jobs, queues={"default": slots}, batch_size=500))
    assert min(notified) <= most, notified


async def test_pickup_by_an_idle_worker_takes_no_poll(app: Holdfast, ledger: Ledger) -> None:
    started: set[int] = set()

    @app.job("act")
    async def act(job: Job[None]) -> None:
        started.add(job.id)

    async with app.worker(**MINUTE), Stopwatch() as watch:
        for _ in range(10):
            await until(lambda: ledger.value(ASLEEP))
            job = ledger.enqueue_one(act.new())
            watch.restart()
            await until(lambda: job in started)  # noqa: B023 - awaited in the same turn
            assert watch.seconds < 10


@pytest.mark.parametrize("at_once", [True, False], ids=["many at once", "one by one"])
async def test_as_many_are_woken_as_are_needed(app: Holdfast, ledger: Ledger, at_once: bool) -> None:
    """One sleeper is notified; when more is due than it can run, the others do not sleep on."""
    gate = asyncio.Event()

    @app.job("act")
    async def act(job: Job[None]) -> None:
        await gate.wait()

    async with (
        app.worker(id="a", queues={"default": 2}, **MINUTE),
        app.worker(id="b", queues={"default": 2}, **MINUTE),
        app.worker(id="c", queues={"default": 2}, **MINUTE),
    ):
        await until(lambda: ledger.value(ASLEEP) == 3)
        await after(0.3)  # so that the second look is over
        try:
            if at_once:
                ledger.enqueue(*[act.new() for _ in range(6)])
            else:
                for _ in range(6):
                    ledger.enqueue(act.new())
            await until(lambda: ledger.statuses() == {"processing": 6})
        finally:
            gate.set()
        await until(lambda: ledger.statuses() == {"completed": 6})


async def test_a_retry_wakes_the_sleeper_when_it_is_due(app: Holdfast, ledger: Ledger) -> None:
    from holdfast import Reschedule

    ran: list[float] = []

    @app.job("act")
    async def act(job: Job[None]) -> object:
        ran.append(time.monotonic())
        return Reschedule(ms(500)) if len(ran) == 1 else None

    job = ledger.enqueue_one(act.new())
    async with app.worker(**MINUTE):
        await until(lambda: ledger.status(job) == "completed")
    assert ran[1] - ran[0] >= 0.5


async def test_what_is_put_off_while_the_worker_falls_asleep_is_in_time(
    app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes after the worker has looked when the next is due, and before it sleeps."""

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    async with app.worker(queues={"default": 1}, **MINUTE) as worker:
        claimer = serving(worker).claimer
        link = claimer._link
        await until(lambda: claimer._recorded.seen and not link.busy)  # it sleeps soundly
        ask, looks = link._ask, ["look_ahead", "claim_jobs"]

        async def ask_and_put_off(conn: psycopg.AsyncConnection[Any], statement: Statement[Any]) -> Any:
            answer = await ask(conn, statement)
            if looks and statement.sql == statements()[looks[0]]:
                looks.pop(0)
                claimer._woken.clear()
                ledger.enqueue(act.new().options(delay=ms(300)))
                await until(claimer._woken.is_set)
            return answer

        monkeypatch.setattr(link, "_ask", ask_and_put_off)

        ledger.enqueue(act.new())  # which fills the queue, so that the worker falls asleep anew
        await until(lambda: ledger.completed() == 3)
        assert looks == []


async def test_a_trickle_does_not_end_the_sleep(app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record of sleep stands. A wake-up costs one claim, and at most one later look at everything.

    The latter is for what may have been committed late, where the claim itself was not worth such a look.
    """
    names = {sql: name for name, sql in statements().items()}
    asked: list[str] = []
    looks: list[tuple[int, object]] = []

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    async with app.worker(**MINUTE) as worker:
        claimer = serving(worker).claimer
        link = claimer._link
        await until(lambda: claimer._recorded.seen and not link.busy)
        ask, look, wakes = link._ask, claimer.claim, claimer._wakes
        woken = wakes

        async def ask_and_tell(conn: psycopg.AsyncConnection[Any], statement: Statement[Any]) -> Any:
            asked.append(name := names.get(statement.sql, ""))
            if name == "claim_jobs":
                looks.append((woken, statement.params["reach"]))
            return await ask(conn, statement)

        async def look_and_tell(*args: Any, **options: Any) -> bool:
            nonlocal woken
            woken = claimer._wakes
            return await look(*args, **options)

        monkeypatch.setattr(link, "_ask", ask_and_tell)
        monkeypatch.setattr(claimer, "claim", look_and_tell)
        for number in range(5):
            await after(0.08)
            ledger.enqueue(act.new())
            await until(lambda: ledger.completed() == number + 1)  # noqa: B023 - awaited in the same turn
        before = [wakes, *[notified for notified, _ in looks]]
        by_itself = [reach for (notified, reach), last in zip(looks, before, strict=False) if notified == last]
        assert len(looks) - len(by_itself) <= claimer._wakes - wakes == 5, looks
        assert by_itself == [f"{floor.REACHES[-1]} seconds"] * len(by_itself), looks
        assert len(by_itself) <= 5, looks
        assert {"record_sleep", "look_ahead", "end_sleep"}.isdisjoint(asked)
        # It is woken though it runs something, and a flood ends the sleep.
        ledger.enqueue(*[act.new() for _ in range(50)])
        ledger.enqueue(*[act.new() for _ in range(50)])
        await until(lambda: ledger.completed() == 105)
        await until(lambda: "end_sleep" in asked)


async def test_a_job_for_which_there_was_no_room_does_not_wait_for_the_sleeper(app: Holdfast, ledger: Ledger) -> None:
    gate = asyncio.Event()

    @app.job("act")
    async def act(job: Job[None]) -> None:
        await gate.wait()

    @app.job("other", queue="other")
    async def other(job: Job[None]) -> None: ...

    async with app.worker(queues={"default": 1, "other": 5}, **MINUTE):
        await until(lambda: ledger.value(ASLEEP))
        await after(0.3)
        try:
            ledger.enqueue(act.new())
            await until(lambda: ledger.statuses() == {"processing": 1})
            ledger.enqueue(act.new())
            await after(0.1)
            job = ledger.enqueue_one(other.new())
            await until(lambda: ledger.status(job) == "completed")
        finally:
            gate.set()
        await until(lambda: ledger.completed() == 3)


async def test_what_is_committed_late_below_the_floors_is_found_by_the_sleeper(
    app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Wide looks are rare, and as rare where the first of them is slow.
    monkeypatch.setattr(floor, "SHARE_OF_TIME", 1 / 500)
    advance = floor.Floors.advance
    monkeypatch.setattr(
        floor.Floors, "advance", lambda self, jobs, **how: advance(self, jobs, **how | {"took": min(how["took"], 0.01)})
    )

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    async def completed(job: int, seconds: float) -> None:
        await until(lambda: ledger.status(job) == "completed", seconds)

    async with app.worker(**MINUTE):
        for _ in range(3):
            with psycopg.connect(ledger.url) as conn:
                late = app.sync.enqueue(conn, act.new()).id
                await after(0.4)
                await completed(ledger.enqueue_one(act.new()), 10)
                await until(lambda: ledger.value(ASLEEP))
                await after(0.2)
            await completed(late, 45)  # a minute would be the idle time


async def test_without_listening_it_works_by_polling(app: Holdfast, ledger: Ledger) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    async with app.worker(listen=False, **QUICK):
        for _ in range(3):
            jobs = ledger.enqueue(*[act.new() for _ in range(20)])
            await until(lambda: all(ledger.status(job) == "completed" for job in jobs))  # noqa: B023 - awaited here
        assert ledger.rows("SELECT FROM holdfast.sleeper") == []


async def test_a_listener_that_was_cut_off_listens_again(app: Holdfast, ledger: Ledger) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    async with app.worker(**MINUTE):
        for _ in range(3):
            job = ledger.enqueue_one(act.new())
            await until(lambda: ledger.status(job) == "completed")  # noqa: B023 - awaited in the same turn
            ledger.do(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND query LIKE 'LISTEN%%'"
            )


async def test_a_listener_whose_server_is_in_recovery_goes_on_trying(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """The server comes back as a standby, which refuses LISTEN, and is promoted later."""
    app = Holdfast()

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    with Server(server.version) as own, clone(own, create_template(own)) as url:
        async with app.worker(database_urls=(url,), **QUICK) as worker:
            await until(worker.pipelines[0].session.listening.is_set)
            own.stop()
            own.data.joinpath("standby.signal").touch(mode=0o644)
            own.start()
            await until(lambda: "cannot execute LISTEN during recovery" in logged(caplog))
            with psycopg.connect(own.url(), autocommit=True) as conn:
                conn.execute("SELECT pg_promote()")
            await until(worker.pipelines[0].session.listening.is_set)
            with psycopg.connect(url, autocommit=True) as conn:
                app.sync.enqueue(conn, act.new())
            await until(lambda: worker.counts.get("job_completed") == 1)


def logged(caplog: pytest.LogCaptureFixture) -> str:
    return " ".join(str(vars(record).get("why")) for record in caplog.records)


@pytest.mark.parametrize("listen", [True, False])
async def test_behind_pgbouncer_in_transaction_mode(
    database: str, ledger: Ledger, bouncer: PgBouncer, listen: bool
) -> None:
    """Statements of one client meet different sessions: nothing is prepared, nothing is kept in a session."""
    app = Holdfast(bouncer.url(database.rpartition("/")[2]))
    gate = asyncio.Event()

    @app.job("act")
    async def act(job: Job[None], wait: bool) -> None:
        if wait:
            await gate.wait()

    async with app.worker(queues={"default": 5}, listen=listen, **QUICK) as worker:
        ledger.enqueue(*[act.new(wait=False) for _ in range(300)])
        await until(lambda: ledger.completed() == 300)
        called_off, goes_on = ledger.enqueue(act.new(wait=True), act.new(wait=True))
        await until(lambda: ledger.statuses().get("processing") == 2)
        ledger.cancel(called_off)
        await until(lambda: ledger.status(called_off) == "cancelled")
        gate.set()
        await until(lambda: ledger.status(goes_on) == "completed")
        for link in (worker.pipelines[0].session.links.claim, worker.pipelines[0].session.links.finish):
            assert link._conn is not None
            assert link._conn.prepare_threshold is None
        # Whatever is heard or not heard through a pooler, new work is found soon.
        for _ in range(3):
            jobs = ledger.enqueue(*[act.new(wait=False) for _ in range(3)])
            await until(lambda: all(ledger.status(job) == "completed" for job in jobs))  # noqa: B023 - awaited here
    assert ledger.wasted() == []
    assert ledger.value("SELECT stop_reason FROM holdfast.worker") == "stopped"
