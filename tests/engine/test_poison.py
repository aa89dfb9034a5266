"""One poisoned item among many: the others go on within two seconds, and it ends alone."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import Holdfast, Retry
from holdfast._engine.jobs import finish
from holdfast._model.outcome import Completed
from holdfast._store import finish as store
from tests.kit.pace import BRIEF, QUICK, ms
from tests.kit.waiting import Stopwatch, until

if TYPE_CHECKING:
    from holdfast import Job
    from tests.kit.ledger import Ledger

SOON = 2.0
# The time of one lease, after which an ending that fails alone is given up.
SHORT: dict[str, Any] = BRIEF | {"lease": ms(1500), "heartbeat": ms(300)}

# A trigger of the user's own on each table in which jobs end.
TRIGGER = """
CREATE FUNCTION poisoned() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN IF NEW.kind = 'poison' THEN {}; END IF; RETURN NEW; END $$;
CREATE TRIGGER poisoned BEFORE INSERT ON holdfast.{} FOR EACH ROW EXECUTE FUNCTION poisoned();
"""
CANCELLED = "RAISE query_canceled USING MESSAGE = 'canceling statement due to user request'"
CLASSES = {
    "server refuses the data": "RAISE check_violation USING CONSTRAINT = 'mine'",
    "a trigger raises": "RAISE 'not with us'",
    "statement times out": "PERFORM pg_sleep(60)",
    "statement is cancelled": CANCELLED,
    "row locked for ever": "PERFORM FROM public.locked FOR UPDATE",
    "connection is cut": "PERFORM pg_terminate_backend(pg_backend_pid())",
    "no privilege": "RAISE insufficient_privilege",
}
CLIENT = "client refuses to encode"


def refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the driver refuse a poisonous result, as it does where an encoding lacks a character."""
    for name in ("finish_jobs", "complete_plain"):
        real: Any = getattr(store, name)

        def refusing(worker: int, endings: list[store.Ending], real: Any = real, **options: bool) -> object:
            if any(end.claimed.kind == "poison" and isinstance(end.outcome, Completed) for end in endings):
                "\u20ac".encode("latin-1")
            return real(worker, endings, **options)

        monkeypatch.setattr(finish, name, refusing)


def worker_of(app: Holdfast) -> Any:
    return app.worker(queues={"default": 60}, **SHORT)


class Crowd:
    """A poisonous job among innocent ones, which end at the same time."""

    def __init__(self, app: Holdfast, result: str | None = None) -> None:
        self.gate = asyncio.Event()

        @app.job("poison", retry=Retry(max_attempts=1))
        async def poison(job: Job[None]) -> str | None:
            await self.gate.wait()
            return result

        @app.job("innocent")
        async def innocent(job: Job[None]) -> str:
            await self.gate.wait()
            return "done"

        self.poison = poison
        self.innocent = innocent


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finish, "BATCH_SECONDS", 0.2)


@pytest.mark.nightly(daily=["a trigger raises", "client refuses to encode", "row locked for ever"])
@pytest.mark.parametrize("found", [CLIENT, *CLASSES])
async def test_an_ending_that_cannot_be_written_is_a_dead_letter_and_the_others_are_written(
    app: Holdfast, ledger: Ledger, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.do("CREATE TABLE public.locked (id int)")
    ledger.do("INSERT INTO public.locked VALUES (1)")
    if found == CLIENT:
        refuse(monkeypatch)
    else:
        ledger.do(TRIGGER.format(CLASSES[found], "job_history"))
    crowd = Crowd(app)
    with ExitStack() as ends:
        user = ends.enter_context(psycopg.connect(ledger.url))
        user.execute("SELECT FROM public.locked FOR UPDATE")
        async with worker_of(app):
            culprit, *innocent = ledger.enqueue(crowd.poison.new(), *[crowd.innocent.new() for _ in range(39)])
            await until(lambda: ledger.statuses() == {"processing": 40})
            async with Stopwatch() as watch:
                crowd.gate.set()
                await until(lambda: ledger.statuses().get("completed") == 39)
            assert watch.seconds < SOON
            async with Stopwatch() as watch:
                ledger.enqueue(*[crowd.innocent.new() for _ in range(20)])
                await until(lambda: ledger.statuses().get("completed") == 59)
            assert watch.seconds < SOON
            # One of the same sort that is written later proves that it is not the database.
            await until(lambda: ledger.enqueue(crowd.innocent.new()) and ledger.status(culprit) == "failed")
    assert ledger.job(culprit).attempt == 1
    assert (ledger.job(culprit).error or "").isascii()
    assert ledger.wasted() == []
    assert {ledger.job(job).attempt for job in innocent} == {1}


async def test_no_lease_runs_out_while_a_batch_is_halved(
    app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each statement locks the rows of its batch, so that the heartbeat cannot renew their leases."""
    monkeypatch.setattr(finish, "BATCH_SECONDS", 0.75)
    ledger.do(TRIGGER.format(CLASSES["statement times out"], "job_history"))
    crowd = Crowd(app)
    async with worker_of(app):
        culprit, *innocent = ledger.enqueue(crowd.poison.new(), *[crowd.innocent.new() for _ in range(39)])
        await until(lambda: ledger.statuses() == {"processing": 40})
        crowd.gate.set()
        await until(lambda: ledger.statuses().get("completed") == 39)
    assert {ledger.job(job).attempt for job in innocent} == {1}
    assert ledger.job(culprit).attempt == 1


@pytest.mark.nightly
async def test_an_ending_that_fails_alone_is_given_up_even_if_nothing_else_ends(
    app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finish, "MOST_LEASES", 2)
    ledger.do(TRIGGER.format(CLASSES["statement times out"], "job_history"))
    crowd = Crowd(app)
    crowd.gate.set()
    async with worker_of(app):
        culprit = ledger.enqueue_one(crowd.poison.new())
        await until(lambda: ledger.status(culprit) == "failed")
    assert ledger.job(culprit).error_code == "QueryCanceled"


async def test_endings_that_all_fail_wait_for_the_database(app: Holdfast, ledger: Ledger) -> None:
    """While a table is locked for longer than a lease, no job is the cause, although the server answers."""
    crowd = Crowd(app)
    async with worker_of(app):
        jobs = ledger.enqueue(*[crowd.innocent.new() for _ in range(40)])
        await until(lambda: ledger.statuses() == {"processing": 40})
        with psycopg.connect(ledger.url) as user:
            user.execute("LOCK TABLE holdfast.job_history IN SHARE MODE")
            crowd.gate.set()
            lease = ledger.value("SELECT max(locked_until) FROM holdfast.job")
            await until(lambda: ledger.value("SELECT now() > %s + interval '2 s'", lease))
        await until(lambda: ledger.statuses() == {"completed": 40})
    assert {ledger.job(job).attempt for job in jobs} == {1}


# A trigger on updates of live jobs, by the column that the loop writes.
UPDATES = """
CREATE FUNCTION spoilt() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.kind = 'poison' THEN {}; END IF; RETURN NEW; END $$;
CREATE TRIGGER spoilt BEFORE UPDATE ON holdfast.job FOR EACH ROW WHEN ({}) EXECUTE FUNCTION spoilt();
"""  # noqa: E501
RENEWED = "OLD.locked_until < NEW.locked_until AND OLD.status = 'processing'"
MOVED = "OLD.progress IS DISTINCT FROM NEW.progress"
TOKENS = "SELECT array_agg(lock_token ORDER BY id) FROM holdfast.job WHERE id = ANY (%s)"
UNTIL = "SELECT locked_until FROM holdfast.job WHERE id = %s"


@pytest.mark.nightly(daily=["statement times out-4"])
@pytest.mark.parametrize("culprits", [1, 4])
@pytest.mark.parametrize("found", ["a trigger raises", "statement times out"])
async def test_a_lease_that_cannot_be_renewed_lets_the_others_be_renewed(
    app: Holdfast, ledger: Ledger, found: str, culprits: int
) -> None:
    crowd = Crowd(app)
    async with app.worker(queues={"default": 60}, **BRIEF):
        poisoned = ledger.enqueue(*[crowd.poison.new() for _ in range(culprits)])
        innocent = ledger.enqueue(*[crowd.innocent.new() for _ in range(20)])
        await until(lambda: ledger.statuses() == {"processing": 20 + culprits})
        ledger.do(UPDATES.format(CLASSES[found], RENEWED))
        lost = ledger.value(UNTIL, poisoned[0])
        tokens = ledger.value(TOKENS, innocent)
        await until(lambda: ledger.value("SELECT now() > %s + interval '1 second'", lost))
        held = "SELECT count(*) FROM holdfast.job WHERE id = ANY (%s) AND locked_until > now() AND attempt = 1"
        assert ledger.value(held, innocent) == 20
        assert ledger.value(TOKENS, innocent) == tokens, "no claim was given up"
        ledger.do("DROP TRIGGER spoilt ON holdfast.job")
        crowd.gate.set()
        await until(lambda: ledger.statuses().get("completed", 0) >= 20)
    assert {ledger.job(job).attempt for job in innocent} == {1}


LONGER: dict[str, Any] = {"batch_size": 200, "lease": ms(8_000), "heartbeat": ms(1_500)}
# 30 ms for each statement and 4 ms for each lease: neither all at once nor each alone are they renewed in time.
SLOW = """
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_sleep(TG_ARGV[0]::float); RETURN NEW; END $$;
CREATE TRIGGER slow BEFORE UPDATE OF locked_until ON holdfast.job FOR EACH STATEMENT EXECUTE FUNCTION slow('0.03');
CREATE TRIGGER slow_row BEFORE UPDATE OF locked_until ON holdfast.job FOR EACH ROW EXECUTE FUNCTION slow('0.004');
"""


@pytest.mark.nightly
async def test_where_every_renewal_is_slow_the_leases_are_kept_in_parts(app: Holdfast, ledger: Ledger) -> None:
    crowd = Crowd(app)
    async with app.worker(queues={"default": 200}, **(BRIEF | LONGER)):
        jobs = ledger.enqueue(*[crowd.innocent.new() for _ in range(200)])
        await until(lambda: ledger.statuses() == {"processing": 200})
        ledger.do(SLOW)
        lease = ledger.value("SELECT max(locked_until) FROM holdfast.job")
        await until(lambda: ledger.value("SELECT now() > %s + interval '3 seconds'", lease))
        assert (
            ledger.value("SELECT count(*) FROM holdfast.job WHERE id = ANY (%s) AND locked_until > now()", jobs) == 200
        )
        ledger.do("DROP TRIGGER slow ON holdfast.job")
        ledger.do("DROP TRIGGER slow_row ON holdfast.job")
        crowd.gate.set()
        await until(lambda: ledger.completed() == 200)
    assert {ledger.job(job).attempt for job in jobs} == {1}
    assert ledger.wasted() == []


@pytest.mark.nightly(daily=["a trigger raises"])
@pytest.mark.parametrize("found", ["a trigger raises", "statement times out"])
async def test_progress_that_is_refused_lets_the_others_be_stored(app: Holdfast, ledger: Ledger, found: str) -> None:
    gate = asyncio.Event()

    async def report(job: Job[None]) -> None:
        await gate.wait()
        job.progress(0.5, "half")
        await asyncio.Event().wait()

    poison, innocent = (app.job(name, max_runtime=ms(120_000))(report) for name in ("poison", "innocent"))
    ledger.do(UPDATES.format(CLASSES[found], MOVED))
    async with app.worker(queues={"default": 60}, **QUICK):
        app.sync.enqueue_many(ledger.conn, [poison.new(), *[innocent.new() for _ in range(7)]])
        await until(lambda: ledger.statuses() == {"processing": 8})
        async with Stopwatch() as watch:
            gate.set()
            await until(lambda: ledger.value("SELECT count(*) FROM holdfast.job WHERE progress = 0.5") == 7)
        assert watch.seconds < SOON + (4 * 1.0 if found == "statement times out" else 0)


@pytest.mark.parametrize("found", ["a trigger raises", "row locked for ever"])
async def test_an_expired_job_that_cannot_be_taken_back_lets_the_others_be(
    app: Holdfast, ledger: Ledger, found: str, caplog: pytest.LogCaptureFixture
) -> None:
    ledger.do("CREATE TABLE public.locked (id int)")
    ledger.do("INSERT INTO public.locked VALUES (1)")
    crowd = Crowd(app)
    culprit = ledger.enqueue(crowd.poison.new(), *[crowd.innocent.new() for _ in range(20)])[0]
    ledger.do(
        "UPDATE holdfast.job SET status = 'processing', attempt = 1, lock_token = 1, locked_by = 77,"
        " locked_until = now() - CASE id WHEN %s THEN interval '2 minutes' ELSE interval '1 minute' END",
        culprit,
    )
    ledger.do(TRIGGER.format(CLASSES[found], "job_failed"))
    crowd.gate.set()
    with psycopg.connect(ledger.url) as user:
        user.execute("SELECT FROM public.locked FOR UPDATE")
        async with app.worker(queues={"default": 60}, **SHORT):
            await until(lambda: ledger.statuses() == {"completed": 20, "processing": 1})
    assert ledger.job(culprit).attempt == 1
    logged = [record.__dict__["id"] for record in caplog.records if "cannot be taken back" in record.message]
    assert set(logged) == {culprit}


@pytest.mark.parametrize("at", ["-infinity", "0001-01-01 BC", "infinity"])
def test_a_row_that_no_client_can_read_is_not_stored(app: Holdfast, ledger: Ledger, at: str) -> None:
    """A claim answers with many rows, and a driver reads all of them or none."""
    job = ledger.enqueue_one(Crowd(app).innocent.new())
    with pytest.raises(psycopg.errors.CheckViolation):
        ledger.do("UPDATE holdfast.job SET available_at = %s::timestamptz WHERE id = %s", at, job)
