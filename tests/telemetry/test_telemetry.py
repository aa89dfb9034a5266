"""The metrics of a worker, compared with the rows of the database."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from holdfast import Busy, Fail, Holdfast, Item, Job, Reschedule, Retry
from holdfast._app.app import application_of
from holdfast._engine.once import run_tick
from holdfast._engine.report.transition import Ticked
from holdfast._model.event import Event  # noqa: TC001 - the subscription reads the annotation
from holdfast._model.schedule import Every
from holdfast._model.settings import Settings
from holdfast._telemetry.metrics import PROCESSED, RUNNER_COUNTS, TICKS
from holdfast._telemetry.telemetry import MOST_FIELDS
from holdfast.telemetry import Telemetry, instrument
from tests.kit.pace import AT_ONCE, PATIENT, QUICK, ms
from tests.kit.waiting import until
from tests.telemetry.letter import Letter

if TYPE_CHECKING:
    from holdfast._engine.report.transition import Transition
    from holdfast._engine.runner import Counts, Tick
    from tests.kit.ledger import Ledger


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def value(registry: CollectorRegistry, name: str, **labels: str) -> float:
    """Return one series of worker `w`; 0 when there is none."""
    return registry.get_sample_value(name, {"worker": "w", **labels}) or 0.0


async def test_counters_of_failures_begin_at_0(app: Holdfast, ledger: Ledger, registry: CollectorRegistry) -> None:
    """Before the first failure: an alert on an increase would miss one that was born at 1."""
    instrument(app, registry=registry)

    @app.job("mail.send")
    async def send(job: Job[Any]) -> None: ...

    async with app.worker(id="w", **QUICK):
        for name in ("holdfast_dead_letter_total", "holdfast_retried_total"):
            assert registry.get_sample_value(name, {"worker": "w", "kind": "mail.send"}) == 0
        failed = {"worker": "w", "runner": "maintenance", "outcome": "failed"}
        assert registry.get_sample_value("holdfast_ticks_total", failed) == 0


async def test_every_way_to_end_is_counted(app: Holdfast, ledger: Ledger, registry: CollectorRegistry) -> None:
    instrument(app, registry=registry)
    ways: dict[str, BaseException] = {
        "retry": ValueError(),
        "reschedule": Reschedule(ms(1)),
        "released": Busy(ms(1)),
        "failed": Fail("no"),
    }

    @app.job("end", retry=AT_ONCE, queue="ends")
    async def end(job: Job[Any], way: str) -> None:
        if way in ways and (way == "failed" or not job.signal.aborted) and not ran.get(job.id):
            ran[job.id] = True
            raise ways[way]

    ran: dict[int, bool] = {}
    ledger.enqueue(*(end.new(way=way) for way in ("completed", *ways)))
    async with app.worker(id="w", **PATIENT):
        await until(lambda: ledger.statuses() == {"completed": 4, "failed": 1})
    counted = {way: value(registry, "holdfast_processed_total", queue="ends", kind="end", outcome=way) for way in ways}
    assert counted == {"retry": 1, "reschedule": 1, "released": 1, "failed": 1}
    assert value(registry, "holdfast_processed_total", queue="ends", kind="end", outcome="completed") == 4
    assert value(registry, "holdfast_retried_total", kind="end") == 1
    assert value(registry, "holdfast_dead_letter_total", kind="end") == 1
    assert value(registry, "holdfast_attempt_duration_seconds_count", kind="end") == 8
    assert value(registry, "holdfast_attempt_wait_seconds_count", kind="end") == 8
    assert 0 < (value(registry, "holdfast_attempt_wait_seconds_sum", kind="end") or 0) < 60
    assert value(registry, "holdfast_held", queue="ends") == 0


async def test_steps_are_counted_by_what_became_of_them(
    app: Holdfast, ledger: Ledger, registry: CollectorRegistry
) -> None:
    instrument(app, registry=registry)

    async def charge(amount: int) -> int:
        if amount > 1:
            raise ValueError
        return amount

    @app.job("story", retry=AT_ONCE)
    async def story(job: Job[Any]) -> None:
        await job.step("charge", charge, 1)
        with suppress(ValueError):
            await job.step("too much", charge, 2)
        await job.sleep("pause", ms(300))

    ledger.enqueue(story.new())
    async with app.worker(id="w", **QUICK):
        await until(lambda: ledger.completed() == 1)
        await until(
            lambda: value(registry, "holdfast_processed_total", queue="default", kind="story", outcome="completed")
        )
    counted = {
        outcome: value(registry, "holdfast_steps_total", kind="story", outcome=outcome)
        for outcome in ("recorded", "replayed", "failed")
    }
    assert counted == {"recorded": 2, "replayed": 3, "failed": 1}


async def test_claims_are_the_ticks_of_the_outbox(app: Holdfast, ledger: Ledger, registry: CollectorRegistry) -> None:
    instrument(app, registry=registry)

    @app.job("quick")
    async def quick(job: Job[Any]) -> None: ...

    ledger.enqueue(*(quick.new() for _ in range(120)))
    async with app.worker(id="w", batch_size=50, **PATIENT):
        await until(lambda: ledger.completed() == 120)
    ticks = value(registry, "holdfast_ticks_total", runner="outbox", outcome="completed")
    assert ticks >= 3
    assert value(registry, "holdfast_tick_processed_sum", runner="outbox") == 120
    assert value(registry, "holdfast_tick_processed_count", runner="outbox") == ticks
    assert value(registry, "holdfast_tick_duration_seconds_count", runner="outbox") == ticks


async def test_what_is_held_is_seen_while_it_is(app: Holdfast, ledger: Ledger, registry: CollectorRegistry) -> None:
    instrument(app, registry=registry)
    gate = asyncio.Event()

    @app.job("gated")
    async def gated(job: Job[Any]) -> None:
        await gate.wait()

    ledger.enqueue(gated.new(), gated.new())
    async with app.worker(id="w", **PATIENT):
        await until(lambda: value(registry, "holdfast_held", queue="default") == 2)
        assert value(registry, "holdfast_worker_up") == 1
        gate.set()
        await until(lambda: value(registry, "holdfast_held", queue="default") == 0)
    assert value(registry, "holdfast_worker_up") == 0


async def test_the_reaper_says_how_many_it_found_and_how_long_they_had_lain(
    app: Holdfast, ledger: Ledger, registry: CollectorRegistry
) -> None:
    instrument(app, registry=registry)

    @app.job("left", retry=Retry(max_attempts=1))
    async def left(job: Job[Any]) -> None: ...

    @app.job("again", retry=AT_ONCE)
    async def again(job: Job[Any]) -> None: ...

    ledger.enqueue(left.new(), again.new())
    ledger.do(
        "UPDATE holdfast.job SET status = 'processing', attempt = 1, locked_by = 0, lock_token = 0,"
        " locked_until = now() - interval '7 seconds'"
    )
    async with app.worker(id="w", **QUICK):
        await until(lambda: ledger.statuses() == {"completed": 1, "failed": 1})
        await until(lambda: value(registry, "holdfast_reaper_runs_total") > 2)
    assert value(registry, "holdfast_recovered_stuck_total") == 2
    assert value(registry, "holdfast_reaper_recovered_count_total", kind="left", became="failed") == 1
    assert value(registry, "holdfast_reaper_recovered_count_total", kind="again", became="pending") == 1
    assert value(registry, "holdfast_dead_letter_total", kind="left") == 1
    assert value(registry, "holdfast_reaper_stale_duration_seconds_count") == 2
    assert 14 <= value(registry, "holdfast_reaper_stale_duration_seconds_sum") < 60


async def test_runners_are_counted_by_outcome(app: Holdfast, ledger: Ledger, registry: CollectorRegistry) -> None:
    instrument(app, registry=registry)

    @app.runner("sweep")
    async def sweep(tick: Any) -> dict[str, int]:
        tick.look_again(timedelta(days=1))
        return {"swept": 3, "kept": 2}

    @app.runner("broken")
    async def broken(tick: Any) -> None:
        raise ValueError

    def ticks(runner: str, outcome: str) -> float:
        return value(registry, "holdfast_ticks_total", runner=runner, outcome=outcome)

    async with app.worker(id="w", **PATIENT):
        await until(lambda: ticks("sweep", "completed") and ticks("broken", "failed"))
        count = ticks("sweep", "completed")
        assert value(registry, "holdfast_tick_processed_sum", runner="sweep") == 5 * count


async def test_the_counts_of_runners_are_counted_by_name(
    app: Holdfast, ledger: Ledger, registry: CollectorRegistry
) -> None:
    telemetry = instrument(app, registry=registry)

    @app.runner("broken", every=Every(timedelta(days=300)))
    def broken(tick: Tick) -> Counts:
        tick.count("deleted", 12)
        tick.count("undone", -1)
        tick.count("kept", 0)
        raise ValueError

    await run_tick(application_of(app, Settings.load({}, tick_runners=("broken", "reaper"))))
    counted = {labels[1:]: count for labels, count in telemetry.series.numbers(RUNNER_COUNTS).items()}
    assert counted == {("broken", "deleted"): 12}
    assert b'field="deleted",runner="broken"' in generate_latest(registry)


def test_names_without_end_are_counted_together_and_harm_no_other_runner(registry: CollectorRegistry) -> None:
    telemetry = Telemetry(registry=registry)
    strange = {"half a \ud800": 1, "two\nlines": 1, "x" * 101: 1}
    many = {f"customer_{number}": 1 for number in range(3_000)}
    telemetry.ticked("w", Ticked(runner="noisy", outcome="completed", counts={**strange, **many}))
    telemetry.ticked("w", Ticked(runner="quiet", outcome="failed", counts={"deleted": 12}))
    numbers = telemetry.series.numbers(RUNNER_COUNTS)
    assert len(numbers) == MOST_FIELDS + 2
    assert numbers["w", "noisy", "customer_0"] == 1
    assert numbers["w", "noisy", "other"] == 3_003 - MOST_FIELDS
    assert numbers["w", "quiet", "deleted"] == 12
    assert generate_latest(registry).count(b"holdfast_runner_counts_total{") == MOST_FIELDS + 2


async def test_listeners_receive_each_job_beside_an_observer(
    app: Holdfast, ledger: Ledger, registry: CollectorRegistry
) -> None:
    """A listener gets single jobs, an observer batches, and neither gets a job twice."""
    reported: list[Transition] = []
    instrument(app, registry=registry)
    app.listeners.append(reported.append)

    @app.job("quick")
    async def quick(job: Job[Any]) -> None: ...

    ids = ledger.enqueue(*(quick.new() for _ in range(5)))
    async with app.worker(id="w", **PATIENT):
        await until(lambda: ledger.completed() == 5)
    assert sorted(t.job for t in reported if t.name == "job_claimed" and t.job) == ids
    assert sorted(t.job for t in reported if t.name == "job_completed" and t.job) == ids
    assert value(registry, "holdfast_processed_total", queue="default", kind="quick", outcome="completed") == 5


async def test_an_observer_that_fails_has_no_effect(
    app: Holdfast, ledger: Ledger, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    telemetry = instrument(app)
    monkeypatch.setattr(telemetry.series, "add", lambda *_: 1 / 0)

    @app.job("quick")
    async def quick(job: Job[Any]) -> None: ...

    ledger.enqueue(*(quick.new() for _ in range(5)))
    async with app.worker(id="w", **PATIENT):
        await until(lambda: ledger.completed() == 5)
    assert "a listener failed" in caplog.text


async def test_a_batch_is_many_attempts(app: Holdfast, ledger: Ledger, registry: CollectorRegistry) -> None:
    instrument(app, registry=registry)

    @app.batch("mail", size=10)
    async def mail(items: list[Item[Letter]]) -> None: ...

    ledger.enqueue(*(mail.new(Letter(7)) for _ in range(30)))
    async with app.worker(id="w", **PATIENT):
        await until(lambda: ledger.completed() == 30)
    assert value(registry, "holdfast_processed_total", queue="default", kind="mail", outcome="completed") == 30
    assert value(registry, "holdfast_attempt_duration_seconds_count", kind="mail") == 30


async def test_events_that_became_jobs_are_counted(app: Holdfast, ledger: Ledger, registry: CollectorRegistry) -> None:
    instrument(app, registry=registry)
    posted = app.event("said", dict[str, int])

    @app.on(posted, name="heard", start="beginning")
    async def received(job: Job[Any], event: Event[dict[str, int]]) -> None: ...

    app.sync.publish_many(ledger.conn, [posted.new({"n": n}) for n in range(7)])
    async with app.worker(id="w", **PATIENT):
        await until(lambda: ledger.completed() == 7)
    assert value(registry, "holdfast_relay_published_total", subscription="heard") == 7


async def test_a_tick_of_a_cron_job_is_measured_too(app: Holdfast, ledger: Ledger, registry: CollectorRegistry) -> None:
    """One-shot mode, for exporters that push."""
    telemetry = instrument(app, registry=registry)

    @app.job("quick")
    async def quick(job: Job[Any]) -> None: ...

    ledger.enqueue(*(quick.new() for _ in range(5)))
    await run_tick(application_of(app, Settings.load({})))
    assert sum(telemetry.series.numbers(PROCESSED).values()) == 5
    runners = {labels[1] for labels in telemetry.series.numbers(TICKS)}
    assert runners >= {"outbox", "reaper", "schedules"}


async def test_two_applications_cannot_share_a_registry_by_mistake(app: Holdfast, registry: CollectorRegistry) -> None:
    instrument(app, registry=registry)
    with pytest.raises(ValueError, match="Duplicated"):
        instrument(app, registry=registry)


async def test_a_pass_beside_a_worker_does_not_take_it_for_stopped(app: Holdfast, registry: CollectorRegistry) -> None:
    instrument(app, registry=registry)

    @app.job("act")
    async def act(job: Job[Any]) -> None: ...

    async with app.worker(**QUICK) as worker:
        await run_tick(application_of(app, Settings.load({}, tick_runners=("outbox",))))
        assert registry.get_sample_value("holdfast_worker_up", {"worker": worker.id}) == 1
    assert registry.get_sample_value("holdfast_worker_up", {"worker": worker.id}) == 0
