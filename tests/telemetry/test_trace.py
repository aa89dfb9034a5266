"""The trace of who enqueues: into the job's headers, through what the job makes, and onto its log lines."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from opentelemetry.sdk.trace import TracerProvider

from holdfast import Continue, Holdfast, Item, Job, Unique
from holdfast._logs import log as logs
from holdfast._logs.log import carry_trace, current_trace, trace_in
from holdfast._model.new_job import Envelope, NewJob
from holdfast.telemetry import instrument
from tests.kit.pace import PATIENT
from tests.kit.waiting import until
from tests.telemetry import cpu
from tests.telemetry.letter import Letter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kit.ledger import Ledger

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-11111111111111111111111111111111-2222222222222222-00"


@pytest.fixture
def span() -> Iterator[str]:
    """An active span, by its traceparent."""
    with TracerProvider(shutdown_on_exit=False).get_tracer("test").start_as_current_span("asking"):
        found = current_trace()
        assert found is not None
        yield found


@pytest.fixture
def lines() -> Iterator[list[logging.LogRecord]]:
    """The records of the logger `shop`, with their context."""
    kept: list[logging.LogRecord] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            kept.append(record)

    handler = Keeping()
    handler.addFilter(logs.ContextFilter())
    logger = logging.getLogger("shop")
    logger.addHandler(handler)
    yield kept
    logger.removeHandler(handler)


def headers(ledger: Ledger, kind: str) -> list[dict[str, str] | None]:
    tables = ("job", "job_history", "job_failed")
    found = " UNION ALL ".join(f"SELECT id, headers FROM holdfast.{table} WHERE kind = '{kind}'" for table in tables)
    return [row[1] for row in ledger.rows(f"{found} ORDER BY id")]


def job(kind: str = "k", **given: str) -> NewJob[Any]:
    return NewJob[Any](Envelope(kind), "{}").options(headers=given)


def test_outside_of_a_trace_no_trace_is_logged(app: Holdfast, ledger: Ledger) -> None:
    assert current_trace() is None
    app.sync.enqueue(ledger.conn, job())
    assert headers(ledger, "k") == [None]


def test_a_job_carries_the_span_in_which_it_was_enqueued(app: Holdfast, ledger: Ledger, span: str) -> None:
    app.sync.enqueue(ledger.conn, job())
    app.sync.enqueue_many(ledger.conn, [job(), job()])
    app.sync.enqueue(ledger.conn, job().options(unique=Unique("u")))
    app.sync.enqueue(ledger.conn, job(tenant="7"))
    assert headers(ledger, "k") == [{"traceparent": span}] * 4 + [{"tenant": "7", "traceparent": span}]


def test_the_trace_that_a_caller_names_wins(app: Holdfast, ledger: Ledger, span: str) -> None:
    app.sync.enqueue(ledger.conn, job(traceparent=OTHER))
    assert headers(ledger, "k") == [{"traceparent": OTHER}]


async def test_what_a_job_makes_belongs_to_its_trace(
    app: Holdfast, database: str, ledger: Ledger, lines: list[logging.LogRecord]
) -> None:
    """Without any span in the worker: by what the job carries."""
    posted = app.event("said", dict[str, int])

    @app.job("first")
    async def first(job: Job[Any]) -> Any:
        logging.getLogger("shop").warning("first")
        async with await psycopg.AsyncConnection.connect(database) as conn:
            await app.enqueue(conn, plain.new())
            await app.publish(conn, posted.new({}))
        return Continue(second.new())

    @app.job("second")
    async def second(job: Job[Any]) -> Any:
        async with await psycopg.AsyncConnection.connect(database) as conn:
            return await job.complete(conn, Continue(plain.new()))

    @app.job("plain")
    def plain(job: Job[Any]) -> None:
        logging.getLogger("shop").warning("plain")

    ledger.enqueue(first.new().options(headers={"traceparent": TRACE}), plain.new())
    async with app.worker(**PATIENT):
        await until(lambda: ledger.completed() == 5)
    assert headers(ledger, "second") == [{"traceparent": TRACE}]
    assert headers(ledger, "plain") == [None, {"traceparent": TRACE}, {"traceparent": TRACE}]
    assert ledger.rows("SELECT trace FROM holdfast.event") == [(TRACE,)]
    reported = [(line.message, getattr(line, "trace", None)) for line in lines]
    of_trace = TRACE[3:35]
    assert sorted(reported, key=str) == [("first", of_trace), *[("plain", of_trace)] * 2, ("plain", None)]


@pytest.mark.parametrize("given", [{}, {"tenant": "7"}, {"tenant": "7", "traceparent": OTHER}])
async def test_a_continuation_has_the_headers_before_it_and_the_present_trace(
    app: Holdfast, ledger: Ledger, given: dict[str, str]
) -> None:
    seen: list[str | None] = []

    instrument(app, tracer_provider=TracerProvider(shutdown_on_exit=False))

    @app.job("first")
    async def first(job: Job[Any]) -> Any:
        seen.append(current_trace())
        return Continue(second.new())

    @app.job("second")
    async def second(job: Job[Any]) -> Any:
        seen.append(current_trace())
        return Continue(third.new().options(headers={"own": "1"}))

    @app.job("third")
    async def third(job: Job[Any]) -> None: ...

    ledger.enqueue(first.new().options(headers=given))
    async with app.worker(**PATIENT):
        await until(lambda: ledger.completed() == 3)
    assert headers(ledger, "second") == [given | {"traceparent": seen[0]}]
    assert headers(ledger, "third") == [{"own": "1", "traceparent": seen[1]}]


async def test_each_of_a_batch_keeps_its_own_trace(app: Holdfast, ledger: Ledger) -> None:
    @app.batch("mail", size=10)
    async def mail(items: list[Item[Letter]]) -> list[Any]:
        return [Continue(sent.new(item.args.number)) for item in items]

    @app.job("sent")
    async def sent(job: Job[Any], number: int) -> None: ...

    traces = [TRACE, None, OTHER]
    given = [{} if trace is None else {"traceparent": trace} for trace in traces]
    ledger.enqueue(*(mail.new(Letter(n)).options(headers=of) for n, of in enumerate(given)))
    async with app.worker(**PATIENT):
        await until(lambda: ledger.completed() == 6)
    found = ledger.rows("SELECT payload->>'number', headers FROM holdfast.job_history WHERE kind = 'sent' ORDER BY 1")
    assert found == [("0", given[0]), ("1", None), ("2", given[2])]


async def test_a_handler_in_a_process_of_its_own_has_the_trace(
    database: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", database)
    made = ledger.enqueue_one(cpu.trace.new().options(headers={"traceparent": TRACE}))
    none = ledger.enqueue_one(cpu.trace.new())
    async with cpu.app.worker(queues={"default": 1}, **PATIENT):
        await until(lambda: ledger.completed() == 2)
    assert (ledger.job(made).result, ledger.job(none).result) == (TRACE, None)


@pytest.mark.parametrize(
    "wrong",
    [
        '{"traceparent": "x"}',
        '{"traceparent": "00-00000000000000000000000000000000-b7ad6b7169203331-01"}',
        '{"traceparent": "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}',
    ],
)
async def test_an_invalid_traceparent_is_ignored(app: Holdfast, ledger: Ledger, wrong: str) -> None:
    """Jobs enqueued from SQL may contain anything."""

    @app.job("first")
    async def first(job: Job[Any]) -> Any:
        return Continue(second.new())

    @app.job("second")
    async def second(job: Job[Any]) -> None: ...

    ledger.do("SELECT holdfast.enqueue('first', headers => %s::json)", wrong)
    async with app.worker(**PATIENT):
        await until(lambda: ledger.completed() == 2)
    assert headers(ledger, "second") == [json.loads(wrong)]


@pytest.mark.parametrize("wrong", ['{"traceparent": 7}', "[]", '["traceparent"]', "7"])
def test_headers_that_are_none_are_refused(ledger: Ledger, wrong: str) -> None:
    with pytest.raises(psycopg.Error, match=r"headers: (a JSON object|text) expected") as refused:
        ledger.do("SELECT holdfast.enqueue('first', headers => %s::json)", wrong)
    assert refused.value.sqlstate == "HF002"
    assert headers(ledger, "first") == []


def test_only_a_traceparent_is_taken_for_one() -> None:
    assert trace_in({"traceparent": TRACE}) == TRACE
    assert trace_in({"traceparent": TRACE.upper()}) is None
    assert trace_in({"Traceparent": TRACE}) is None
    assert trace_in({"traceparent": f"{TRACE}\n"}) is None


def test_what_is_carried_gives_way_to_a_span(span: str) -> None:
    carry_trace(OTHER)
    try:
        assert current_trace() == span
    finally:
        carry_trace(None)
