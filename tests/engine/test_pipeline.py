"""The whole way of a job through a worker, and every way it can end."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Busy, Continue, Fail, Holdfast, HoldfastError, Job, Reschedule, Retry
from holdfast._engine import worker as workers
from holdfast._engine.jobs import run_handlers as attempts
from tests.engine.keyless import Keyless
from tests.kit.pace import AT_ONCE, MINUTE, PATIENT, QUICK, ms
from tests.kit.waiting import Stopwatch, after, until

if TYPE_CHECKING:
    from tests.kit.ledger import Ledger


async def test_async_and_plain_handlers(app: Holdfast, ledger: Ledger) -> None:
    here = threading.get_ident()

    @app.job("async")
    async def on_loop(job: Job[None], a: int, b: str = "x") -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"a": a, "b": b, "loop": threading.get_ident() == here, "kind": job.kind, "attempt": job.attempt}

    @app.job("plain")
    def in_thread(job: Job[None], a: int) -> list[Any]:
        return [a, threading.get_ident() == here]

    @app.job("nothing")
    async def nothing(job: Job[None]) -> None: ...

    one, two, three = ledger.enqueue(on_loop.new(7), in_thread.new(8), nothing.new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.completed() == 3)
    assert ledger.job(one).result == {"a": 7, "b": "x", "loop": True, "kind": "async", "attempt": 1}
    assert ledger.job(two).result == [8, False]
    assert ledger.job(three).result is None
    assert ledger.wasted() == []


@pytest.mark.parametrize("how", ["raised", "returned"])
@pytest.mark.parametrize("where", ["async", "plain"])
async def test_outcomes_as_values(app: Holdfast, ledger: Ledger, how: str, where: str) -> None:
    def end(value: Exception) -> Exception:
        if how == "raised":
            raise value
        return value

    def act(job: Job[None], name: str, times: list[float] = []) -> object:  # noqa: B006 - a payload's default
        if name == "fail":
            return end(Fail("no such customer"))
        if name == "reschedule" and job.headers.get("seen") is None and not seen.setdefault(job.id, 0):
            seen[job.id] = job.attempt
            return end(Reschedule(ms(1)))
        return job.attempt

    seen: dict[int, int] = {}
    if where == "async":

        @app.job("act")
        async def act_async(job: Job[None], name: str) -> object:
            return act(job, name)

        new: Any = act_async.new
    else:
        new = app.job("act")(act).new
    failed, again = ledger.enqueue(new("fail"), new("reschedule"))
    async with app.worker(**QUICK) as worker:
        await until(lambda: {ledger.status(failed), ledger.status(again)} == {"failed", "completed"})
        await until(lambda: worker.counts.get("job_failed") == worker.counts.get("job_rescheduled") == 1)
    assert ledger.job(failed)[1:5] == (1, None, "Fail", "no such customer")
    assert ledger.job(again).attempt == 1, "asking for another time is no attempt"
    assert ledger.attempts(again) == [(1, "reschedule"), (1, "completed")]


async def test_an_error_is_retried_until_the_attempts_are_used_up(app: Holdfast, ledger: Ledger) -> None:
    @app.job("flaky", retry=AT_ONCE)
    async def flaky(job: Job[None], good_from: int) -> int:
        if job.attempt < good_from:
            raise RuntimeError(f"attempt {job.attempt}")
        return job.attempt

    good, bad = ledger.enqueue(flaky.new(3), flaky.new(9))
    async with app.worker(**QUICK):
        await until(lambda: ledger.statuses() == {"completed": 1, "failed": 1})
    assert ledger.job(good)[:3] == ("completed", 3, 3)
    assert ledger.attempts(good) == [(1, "retry"), (2, "retry"), (3, "completed")]
    assert ledger.job(bad)[:5] == ("failed", 3, None, "RuntimeError", "attempt 3")
    assert ledger.attempts(bad) == [(1, "retry"), (2, "retry"), (3, "failed")]


async def test_a_job_has_its_own_number_of_attempts(app: Holdfast, ledger: Ledger) -> None:
    @app.job("flaky", retry=AT_ONCE)
    async def flaky(job: Job[None]) -> None:
        raise RuntimeError

    fewer, more = ledger.enqueue(flaky.new().options(max_attempts=1), flaky.new().options(max_attempts=5))
    async with app.worker(**QUICK):
        await until(lambda: ledger.statuses() == {"failed": 2})
    assert (ledger.job(fewer).attempt, ledger.job(more).attempt) == (1, 5)


async def test_what_says_it_is_not_retryable_is_not_retried(app: Holdfast, ledger: Ledger) -> None:
    class Refused(Exception):  # noqa: N818 - what it is
        retryable = False

    @app.job("refused")
    async def refused(job: Job[None]) -> None:
        raise Refused("for good")

    job = ledger.enqueue_one(refused.new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(job) == "failed")
    assert ledger.job(job)[1:5] == (1, None, "Refused", "for good")


ERRORS = (SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit, StopIteration, BaseException)


@pytest.mark.parametrize("where", ["async", "plain"])
async def test_whatever_a_handler_raises_is_an_outcome(app: Holdfast, ledger: Ledger, where: str) -> None:
    def act(job: Job[None], error: int) -> str:
        if job.attempt == 1:
            raise ERRORS[error]
        return "went on"

    if where == "plain":
        new = app.job("act", retry=AT_ONCE)(act).new
    else:

        @app.job("act", retry=AT_ONCE)
        async def act_async(job: Job[None], error: int) -> str:
            await asyncio.sleep(0)
            return act(job, error)

        new = act_async.new
    jobs = ledger.enqueue(*[new(error) for error in range(len(ERRORS))])
    async with app.worker(**QUICK):
        await until(lambda: ledger.statuses() == {"completed": len(ERRORS)})
    for job, error in zip(jobs, ERRORS, strict=True):
        assert ledger.job(job)[1:3] == (2, "went on"), error
        assert ledger.attempts(job) == [(1, "retry"), (2, "completed")], error


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


UNFIT: tuple[Any, ...] = (object(), {1, 2}, float("nan"), CIRCLE, b"bytes", "x" * 300_000)


async def test_a_result_that_cannot_be_stored_fails_the_job_clearly(app: Holdfast, ledger: Ledger) -> None:
    @app.job("odd")
    async def odd(job: Job[None], which: int) -> Any:
        return UNFIT[which]

    jobs = ledger.enqueue(*[odd.new(which) for which in range(len(UNFIT))])
    async with app.worker(**QUICK):
        await until(lambda: ledger.statuses() == {"failed": len(UNFIT)})
    for job in jobs:
        assert ledger.job(job).attempt == 1
        assert "the result cannot be stored" in (ledger.job(job).error or "")


async def test_a_codec_that_raises_is_an_error_of_the_attempt(database: str, ledger: Ledger) -> None:
    app = Holdfast(database, codec=Keyless())

    @app.job("tells", retry=AT_ONCE)
    async def answers(job: Job[None]) -> str:
        return "secret" if job.attempt < 3 else "plain"

    job = ledger.enqueue_one(answers.new())
    async with app.worker(**PATIENT):
        await until(lambda: ledger.status(job) == "completed")
    assert ledger.attempts(job) == [(1, "retry"), (2, "retry"), (3, "completed")]


async def test_going_on_with_a_kind_is_an_error_that_says_what_to_write(app: Holdfast, ledger: Ledger) -> None:
    @app.job("goes.on", retry=AT_ONCE)
    async def goes_on(job: Job[None]) -> Any:
        return Continue(goes_on)  # type: ignore[arg-type]

    job = ledger.enqueue_one(goes_on.new())
    async with app.worker(**PATIENT):
        await until(lambda: ledger.status(job) == "failed")
    assert ledger.job(job)[3:5] == (
        "TypeError",
        "Continue: goes.on is a Kind, not a job: call its .new(…) and give what it returns",
    )


ODD = ("\ud800", "\x00", "a\x00\ud83d", "\udfff' {\\", "é 漢 😀", '"}, {"', "${x} %s %(a)s")


async def test_odd_text_in_results_and_errors_is_stored(app: Holdfast, ledger: Ledger) -> None:
    @app.job("returns")
    async def returns(job: Job[None], which: int) -> Any:
        return {"text": ODD[which]}

    @app.job("raises")
    async def raises(job: Job[None], which: int) -> None:
        raise Fail(ODD[which])

    for which in range(len(ODD)):
        ledger.enqueue(returns.new(which), raises.new(which))
    async with app.worker(**QUICK):
        await until(lambda: ledger.statuses() == {"completed": len(ODD), "failed": len(ODD)})


async def test_a_payload_that_does_not_fit_is_given_back_then_failed(
    app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.job("fits")
    async def fits(job: Job[None], number: int) -> None: ...

    monkeypatch.setattr(attempts, "MISFIT_PAUSE", ms(1))
    job = ledger.enqueue_one(fits.new(1))
    ledger.do("UPDATE holdfast.job SET payload = '{\"other\": 1}'")
    async with app.worker(**QUICK) as worker:
        await until(lambda: worker.counts.get("job_released", 0) > 2)
        assert ledger.value("SELECT last_error_code FROM holdfast.job") == "InvalidJob"
        assert ledger.value("SELECT attempt - (status = 'processing')::integer FROM holdfast.job") == 0
    ledger.do("UPDATE holdfast.job SET created_at = now() - interval '11 minutes'")
    monkeypatch.setattr(workers, "DEPLOY_GRACE", 0.0)
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(job) == "failed")
    assert ledger.job(job).attempt == 1
    assert "number" in (ledger.job(job).error or "")


async def test_busy_sends_the_job_back_and_lets_the_queue_rest(app: Holdfast, ledger: Ledger) -> None:
    starts: list[float] = []
    clock = asyncio.get_running_loop().time

    @app.job("call", queue="slow")
    async def call(job: Job[None]) -> int:
        starts.append(clock())
        if len(starts) == 1:
            raise Busy(ms(3000))
        return job.attempt

    @app.job("other")
    async def other(job: Job[None]) -> None: ...

    jobs = ledger.enqueue(*[call.new() for _ in range(3)])
    # Nothing but the end of the rest brings the next start: the heartbeat comes every 15 s.
    async with app.worker(queues={"slow": 1, "default": 2}, **PATIENT):
        await until(lambda: len(starts) == 1)
        others = ledger.enqueue(*[other.new() for _ in range(5)])
        await until(lambda: all(ledger.status(job) == "completed" for job in others))
        assert len(starts) == 1
        async with Stopwatch() as watch:
            await until(lambda: all(ledger.status(job) == "completed" for job in jobs))
        assert watch.seconds < 10
    assert starts[1] - starts[0] >= 3
    assert [ledger.job(job).attempt for job in jobs] == [1, 1, 1]


async def test_the_rest_of_the_only_queue_ends_in_time(app: Holdfast, ledger: Ledger) -> None:
    @app.job("call")
    async def call(job: Job[None]) -> object:
        calls.append(job.id)
        return Busy(ms(200)) if len(calls) == 1 else None

    calls: list[int] = []
    job = ledger.enqueue_one(call.new())
    async with app.worker(**PATIENT), Stopwatch() as watch:
        await until(lambda: ledger.status(job) == "completed")
    assert watch.seconds < 10


async def test_cancelled_and_expired_before_they_started(app: Holdfast, ledger: Ledger) -> None:
    ran = []

    @app.job("act")
    async def act(job: Job[None]) -> None:
        ran.append(job.id)

    waiting, expired, keyed = ledger.enqueue(
        act.new(), act.new().options(expires=ms(1)), act.new().options(order_key="k")
    )
    assert ledger.cancel(waiting) == "cancelled"
    assert ledger.cancel(keyed) == "requested"
    await until(
        lambda: ledger.value("SELECT bool_and(expires_at < now()) FROM holdfast.job WHERE expires_at IS NOT NULL")
    )
    async with app.worker(**QUICK):
        await until(lambda: ledger.statuses() == {"cancelled": 3})
    assert ran == []
    assert ledger.job(expired).error_code == "expired"


async def test_delayed_jobs_start_when_due(app: Holdfast, ledger: Ledger) -> None:
    @app.job("later")
    async def later(job: Job[None]) -> None: ...

    job = ledger.enqueue_one(later.new().options(delay=ms(700)))
    async with app.worker(**MINUTE):
        await until(lambda: ledger.status(job) == "completed")
    late = ledger.value("SELECT finished_at - available_at FROM holdfast.job_history")
    assert timedelta(0) <= late < ms(5_000), "not by a look that would have come anyway"


async def test_retries_wait_for_the_configured_delay(app: Holdfast, ledger: Ledger) -> None:
    times = []

    @app.job("flaky", retry=Retry(2, base=ms(300), jitter=ms(0)))
    async def flaky(job: Job[None]) -> None:
        times.append(asyncio.get_running_loop().time())
        raise RuntimeError

    job = ledger.enqueue_one(flaky.new())
    async with app.worker(**MINUTE):
        await until(lambda: ledger.status(job) == "failed")
    assert 0.3 <= times[1] - times[0] < 5


async def test_lifespan_state_is_shared_and_closed(database: str, ledger: Ledger) -> None:
    from contextlib import asynccontextmanager

    story: list[str] = []

    @asynccontextmanager
    async def resources(_: Holdfast) -> Any:
        story.append("opened")
        yield {"answer": 42}
        story.append("closed")

    app = Holdfast(database, lifespan=resources)

    @app.job("ask")
    async def ask(job: Job[dict[str, int]]) -> int:
        story.append("ran")
        return job.state["answer"]

    job = ledger.enqueue_one(ask.new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(job) == "completed")
        assert story == ["opened", "ran"]
    assert story == ["opened", "ran", "closed"]
    assert ledger.job(job).result == 42


async def test_two_workers_in_one_process(app: Holdfast, ledger: Ledger) -> None:
    ran: list[str] = []

    async def note(job: Job[Any], worker: str, proceed: Any) -> object:
        ran.append(worker)
        await until(lambda: len({*ran}) == 2)
        return await proceed()

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    app.middlewares.append(note)
    async with (
        app.worker(id="one", queues={"default": 2}, **QUICK),
        app.worker(id="two", queues={"default": 2}, **QUICK),
    ):
        ledger.enqueue(*[act.new() for _ in range(60)])
        await until(lambda: ledger.completed() == 60)
        await until(lambda: ledger.sessions() == 8)
    assert set(ran) == {"one", "two"}
    assert len(ran) == 60
    assert sorted(ledger.rows("SELECT name, stop_reason FROM holdfast.worker")) == [
        ("one", "stopped"),
        ("two", "stopped"),
    ]


async def test_one_worker_cannot_serve_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.delenv("HOLDFAST_DATABASE_URL", raising=False)
    with pytest.raises(Exception, match=r"(?i)database"):
        Holdfast().worker()


@pytest.mark.parametrize("queues", [{}, {"default": 0}, {"default": -3}, {"default": True}, {"a": 1, "default": "2"}])
def test_queues_that_would_serve_nothing_are_refused(app: Holdfast, queues: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r'queues: expected a mapping such as \{"default": 10, "mail": 2\}.*, got '):
        app.worker(queues=queues)


@pytest.mark.parametrize("queues", [["default"], {7: 1}, {"": 1}])
def test_queues_of_another_shape_are_refused(app: Holdfast, queues: Any) -> None:
    with pytest.raises(TypeError, match="queues: expected a mapping such as"):
        app.worker(queues=queues)


async def test_a_worker_runs_once(app: Holdfast, ledger: Ledger) -> None:
    worker = app.worker(**QUICK)
    async with worker:
        with pytest.raises(HoldfastError, match=r"a worker runs once: for another run, call app.worker\(\) again"):
            await worker.__aenter__()
        assert not worker.stopping
    with pytest.raises(HoldfastError, match="a worker runs once"):
        async with worker:
            pass
    assert ledger.value("SELECT count(*) FROM holdfast.worker") == 1


class Hostile(Exception):  # noqa: N818 - what it is
    """Whatever is read of it raises what ends programs."""

    def __str__(self) -> str:
        raise SystemExit(9)

    __repr__ = __str__

    @property
    def code(self) -> str:
        raise SystemExit(8)

    retryable = diag = code


class HostileRest(Reschedule):
    after = property(lambda _: exec("raise SystemExit(7)"), lambda *_: None)  # noqa: S102


class HostileResult(dict[str, int]):
    def items(self) -> Any:
        raise SystemExit(6)


async def test_an_error_that_raises_when_it_is_read_does_not_end_the_worker(app: Holdfast, ledger: Ledger) -> None:
    errors = {"itself": Hostile(), "group": ExceptionGroup("both", [Hostile(), Hostile()]), "rest": HostileRest(ms(1))}

    @app.job("act", retry=Retry(max_attempts=1))
    async def act(job: Job[None], which: str) -> None:
        raise errors[which]

    @app.job("result", retry=Retry(max_attempts=1))
    async def result(job: Job[None]) -> Any:
        return HostileResult(a=1)

    jobs = dict(zip(errors, ledger.enqueue(*[act.new(which) for which in errors]), strict=True))
    odd = ledger.enqueue_one(result.new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.statuses() == {"failed": 4})
    assert ledger.job(jobs["itself"])[3:5] == ("Hostile", "<Hostile that cannot be printed>")
    assert "Hostile that cannot be printed" in (ledger.job(jobs["group"]).error or "")
    assert "looking at it raised SystemExit" in (ledger.job(jobs["rest"]).error or "")
    assert ledger.job(odd).error_code == "SystemExit"


async def test_kinds_of_others_are_left_alone(app: Holdfast, ledger: Ledger) -> None:
    other = Holdfast()

    @app.job("ours")
    async def ours(job: Job[None]) -> None: ...

    @other.job("theirs")
    async def theirs(job: Job[None]) -> None: ...

    left, mine = ledger.enqueue(theirs.new(), ours.new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(mine) == "completed")
        await after(0.3)
    assert ledger.job(left)[:2] == ("pending", 0)
