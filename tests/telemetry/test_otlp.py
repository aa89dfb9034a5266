"""Metrics and traces as they arrive at a real receiver."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from opentelemetry import trace

from holdfast import Continue, Holdfast, Item, Job
from holdfast._model.event import Event  # noqa: TC001 - the subscription reads the annotation
from holdfast._model.schedule import Every
from holdfast._ops.gauges import Gauges
from holdfast._ops.service import Service
from holdfast._relay.sinks.nats import NatsSink
from holdfast._telemetry.metrics import FLEET, PROCESS
from holdfast.telemetry import instrument
from tests.kit.nats import stream
from tests.kit.pace import AT_ONCE, PATIENT
from tests.kit.waiting import until
from tests.telemetry.letter import Letter
from tests.telemetry.receiver import Receiver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kit.ledger import Ledger
    from tools.nats import NatsServer

CONSUMER, PRODUCER, OK, ERROR = 5, 4, 0, 2


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@contextmanager
def request(receiver: Receiver, name: str = "POST /checkout") -> Iterator[tuple[str, str]]:
    """A span of the application's own, and its ids."""
    with receiver.tracers.get_tracer("shop").start_as_current_span(name) as span:
        context = span.get_span_context()
        yield f"{context.trace_id:032x}", f"{context.span_id:016x}"


async def connected(url: str) -> psycopg.AsyncConnection[Any]:
    return await psycopg.AsyncConnection.connect(url, autocommit=True)


async def test_a_trace_runs_from_the_request_through_every_attempt_to_the_sink(
    app: Holdfast, database: str, ledger: Ledger, receiver: Receiver, nats_server: NatsServer
) -> None:
    instrument(app, tracer_provider=receiver.tracers)
    packed = app.event("shop.packed", dict[str, int])
    paid = app.event("shop.paid", dict[str, int])
    app.relay("to-nats", packed, paid, to=NatsSink(nats_server.url), start="beginning")
    ran: list[int] = []

    @app.job("order.pack", queue="packing", retry=AT_ONCE)
    async def pack(job: Job[Any], order: int) -> None:
        ran.append(job.attempt)
        if job.attempt == 1:
            raise ValueError("the tape is empty, password=hush")
        async with await connected(database) as conn:
            await app.publish(conn, packed.new({"order": order}))

    async with stream(nats_server, "shop", "shop.>") as shop:
        async with await connected(database) as conn:
            with request(receiver) as asked:
                handle = await app.enqueue(conn, pack.new(7))
                await app.publish(conn, paid.new({"order": 7}))
        async with app.worker(id="w", **PATIENT):
            messages = await shop.wait_for(2)
            await until(lambda: ledger.completed() == 1)
    first, second = sorted(
        receiver.wait_for_spans("holdfast.attempt order.pack", 2), key=lambda span: span.attributes["holdfast.attempt"]
    )
    assert ran == [1, 2]
    for span in (first, second):
        assert span.links == [asked]
        assert (span.kind, span.parent) == (CONSUMER, "")
        assert span.attributes["holdfast.job"] == span.attributes["holdfast.chain"] == handle.id
        assert span.attributes["messaging.message.id"] == str(handle.id)
        assert span.attributes["messaging.destination.name"] == span.attributes["holdfast.queue"] == "packing"
        assert span.attributes["holdfast.kind"] == "order.pack"
        assert span.attributes["holdfast.worker"] == "w"
        assert span.attributes["messaging.operation.type"] == "process"
    assert len({asked[0], first.trace, second.trace}) == 3
    assert (first.attributes["holdfast.outcome"], first.status) == ("retry", ERROR)
    assert (first.attributes["error.type"], first.answer) == ("ValueError", "the tape is empty, password=***")
    assert (second.attributes["holdfast.outcome"], second.status) == ("completed", OK)

    sent = {message.subject: message.headers["traceparent"].split("-")[1:3] for message in messages}
    assert sent == {"shop.paid": [*asked], "shop.packed": [second.trace, second.id]}
    [of_paid] = receiver.wait_for_spans("holdfast.publish shop.paid")
    [of_packed] = receiver.wait_for_spans("holdfast.publish shop.packed")
    assert (of_paid.links, of_packed.links) == ([asked], [(second.trace, second.id)])
    assert of_paid.kind == PRODUCER
    assert of_paid.attributes["holdfast.subscription"] == "to-nats"
    assert of_paid.attributes["messaging.operation.type"] == "send"


async def test_continuations_and_jobs_of_events_keep_the_trace(
    app: Holdfast, database: str, ledger: Ledger, receiver: Receiver
) -> None:
    instrument(app, tracer_provider=receiver.tracers)
    paid = app.event("shop.paid", dict[str, int])

    @app.on(paid, name="ledger", start="beginning")
    async def book(job: Job[Any], event: Event[dict[str, int]]) -> Any:
        return Continue(close.new())

    @app.job("close")
    async def close(job: Job[Any]) -> None: ...

    async with await connected(database) as conn:
        with request(receiver) as asked:
            await app.publish(conn, paid.new({"order": 7}))
    async with app.worker(**PATIENT):
        await until(lambda: ledger.completed() == 2)
    [booked] = receiver.wait_for_spans("holdfast.attempt ledger")
    [closed] = receiver.wait_for_spans("holdfast.attempt close")
    assert booked.links == [asked]
    assert closed.links == [(booked.trace, booked.id)]
    assert booked.attributes["holdfast.chain"] == closed.attributes["holdfast.chain"]


async def test_attempts_may_be_children_of_the_request(
    app: Holdfast, database: str, ledger: Ledger, receiver: Receiver
) -> None:
    instrument(app, tracer_provider=receiver.tracers, traces="continued")

    @app.job("pack")
    def pack(job: Job[Any]) -> None:
        """In a thread, which has the span too."""
        ran.append(trace.get_current_span().get_span_context().trace_id)

    ran: list[int] = []
    async with await connected(database) as conn:
        with request(receiver) as asked:
            await app.enqueue(conn, pack.new())
    async with app.worker(**PATIENT):
        await until(lambda: ledger.completed() == 1)
    [span] = receiver.wait_for_spans("holdfast.attempt pack")
    assert (span.trace, span.parent, span.links) == (*asked, [])
    assert ran == [int(asked[0], 16)]


async def test_a_batch_is_one_span_with_its_attempts_inside(
    app: Holdfast, database: str, ledger: Ledger, receiver: Receiver
) -> None:
    instrument(app, tracer_provider=receiver.tracers)

    @app.batch("mail", size=10)
    async def mail(items: list[Item[Letter]]) -> list[Any]:
        return [Continue(sent.new()) if item.args.number == 1 else ValueError("no address") for item in items]

    @app.job("sent")
    async def sent(job: Job[Any]) -> None: ...

    requests = []
    async with await connected(database) as conn:
        for number in range(2):
            with request(receiver) as asked:
                await app.enqueue(conn, mail.new(Letter(number)).options(max_attempts=1))
                requests.append(asked)
    async with app.worker(**PATIENT):
        await until(lambda: ledger.statuses() == {"completed": 2, "failed": 1})
    [batch] = receiver.wait_for_spans("holdfast.batch mail")
    attempts = receiver.wait_for_spans("holdfast.attempt mail", 2)
    assert {(span.trace, span.parent) for span in attempts} == {(batch.trace, batch.id)}
    assert sorted(link for span in attempts for link in span.links) == sorted(requests)
    assert {span.attributes["holdfast.outcome"] for span in attempts} == {"completed", "failed"}
    assert batch.attributes["messaging.batch.message_count"] == 2
    [after] = receiver.wait_for_spans("holdfast.attempt sent")
    assert after.links == [(batch.trace, batch.id)]


async def test_a_refused_publish_is_a_span_that_failed(
    app: Holdfast, database: str, receiver: Receiver, nats_server: NatsServer
) -> None:
    telemetry = instrument(app, tracer_provider=receiver.tracers)
    paid = app.event("nobody.listens", dict[str, int])
    app.relay("to-nowhere", paid, to=NatsSink(nats_server.url), start="beginning")
    async with await connected(database) as conn:
        with request(receiver):
            await app.publish(conn, paid.new({"order": 7}))
    async with app.worker(id="w", **PATIENT):
        spans = await asyncio.to_thread(receiver.wait_for_spans, "holdfast.publish nobody.listens")
    assert {span.status for span in spans} == {ERROR}
    assert all(span.attributes["error.type"] for span in spans)
    assert telemetry.series.numbers(PROCESS[-1])["w", "to-nowhere"] >= 1


async def test_metrics_are_the_same_list_under_their_names(app: Holdfast, ledger: Ledger, receiver: Receiver) -> None:
    meters = receiver.meter_provider()
    instrument(app, meter_provider=meters)

    @app.job("quick", queue="fast")
    async def quick(job: Job[Any]) -> None: ...

    @app.job("spoil", retry=AT_ONCE)
    async def spoil(job: Job[Any]) -> None:
        raise ValueError

    @app.runner("sweep", every=Every(timedelta(days=300)))
    async def sweep(tick: Any) -> dict[str, int]:
        return {"swept": 3}

    ledger.enqueue(*(quick.new() for _ in range(40)), spoil.new())
    async with app.worker(id="w", **PATIENT):
        await until(lambda: ledger.statuses() == {"completed": 40, "failed": 1})
        await until(lambda: len(receiver.points("holdfast.processed")) == 3)
        await until(lambda: receiver.points("holdfast.runner.counts"))
    meters.shutdown()
    found = {labels: point.as_int for labels, point in receiver.points("holdfast.processed").items()}
    assert found == {
        ("quick", "completed", "fast", "w"): 40,
        ("spoil", "retry", "default", "w"): 2,
        ("spoil", "failed", "default", "w"): 1,
    }
    assert receiver.points("holdfast.runner.counts")["swept", "sweep", "w"].as_int == 3
    names = receiver.names()
    assert names.items() <= {i.name: i.unit for i in PROCESS}.items()
    assert {
        "holdfast.ticks",
        "holdfast.attempt.duration",
        "holdfast.reaper.runs.total",
        "holdfast.held",
    } <= names.keys()
    [durations] = [p for labels, p in receiver.points("holdfast.attempt.duration").items() if labels[0] == "quick"]
    assert 1 <= durations.count <= 40
    assert list(durations.explicit_bounds) == list(
        next(i for i in PROCESS if i.name.endswith("attempt.duration")).bounds
    )
    assert receiver.points("holdfast.dead_letter")["spoil", "w"].as_int == 1


async def test_fleet_metrics_are_pushed_to_exporters(database: str, receiver: Receiver) -> None:
    meters = receiver.meter_provider()
    async with Service(database, connections=1, timeout=timedelta(seconds=20)) as desk:
        watching = asyncio.create_task(Gauges(meter_provider=meters).watch({"": desk}, timedelta(seconds=1)))
        await until(lambda: receiver.points("holdfast.fleet.workers"))
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    meters.shutdown()
    assert receiver.points("holdfast.fleet.up")[()].as_double == 1
    assert receiver.names().items() <= {i.name: i.unit for i in FLEET}.items()


def test_the_receiver_keeps_what_it_is_sent(receiver: Receiver) -> None:
    with request(receiver, "alone") as ids:
        pass
    [span] = receiver.wait_for_spans("alone")
    assert (span.trace, span.id) == ids
