"""Spans and metrics for OpenTelemetry. Imported only if a provider is given: opentelemetry-api is an extra."""

from __future__ import annotations

import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from opentelemetry import context as otel
from opentelemetry.metrics import Observation
from opentelemetry.trace import (
    INVALID_SPAN,
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from holdfast._distribution import version
from holdfast._logs.failure import Failure
from holdfast._logs.log import Log, trace_in
from holdfast._model.outcome import Cancelled, Completed, Failed, Released, Rescheduled, Retried
from holdfast._telemetry.metrics import DATABASE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from opentelemetry.context import Context
    from opentelemetry.metrics import CallbackOptions, Histogram, MeterProvider
    from opentelemetry.trace import Span, TracerProvider

    from holdfast._engine.attempt import Attempt
    from holdfast._engine.report.transition import Endings
    from holdfast._model.outcome import Outcome
    from holdfast._telemetry.metrics import Instrument, Labels, Series

Traces: TypeAlias = Literal["linked", "continued"]

# The most attempts of a batch that get their own span.
MOST_SPANS = 128

_OUTCOMES: dict[type[Outcome], str] = {
    Completed: "completed",
    Retried: "retry",
    Rescheduled: "reschedule",
    Released: "released",
    Failed: "failed",
    Cancelled: "cancelled",
}

log = Log("holdfast.tracing")


class Tracing:
    """Follows OpenTelemetry's messaging conventions: the span of an attempt links to the span that enqueued the job.

    Attempts may run hours later, repeatedly, and in batches. A trace with all of them as children would never be
    complete, and the enqueuing side would decide its sampling.
    """

    def __init__(self, provider: TracerProvider, traces: Traces = "linked") -> None:
        self._tracer = provider.get_tracer("holdfast", version())
        self._traces = traces

    @contextmanager
    def attempts(self, worker: str, attempts: Sequence[Attempt]) -> Iterator[Endings]:
        first = attempts[0]
        if first.kind.work.batch is None:
            made = _made_in(first)
            parent = _parent(made) if self._traces == "continued" else None
            spans = [self._attempt(worker, first, parent, made if parent is None else None)]
            active = spans[0]
        else:
            active = self._batch(worker, attempts)
            inside = set_span_in_context(active, otel.Context())
            spans = [self._attempt(worker, attempt, inside, _made_in(attempt)) for attempt in attempts[:MOST_SPANS]]
        token = otel.attach(set_span_in_context(active))
        try:
            yield lambda outcomes: _set_outcomes(spans, outcomes)
        finally:
            otel.detach(token)
            for span in {*spans, active}:
                span.end()

    @contextmanager
    def step(self, attempt: Attempt, name: str, key: str | None) -> Iterator[None]:
        attributes = {"holdfast.job": attempt.claimed.id, "holdfast.kind": attempt.claimed.kind, "holdfast.step": name}
        attributes |= {} if key is None else {"holdfast.step.key": key}
        span = self._started(f"holdfast.step {name}", attributes, kind=SpanKind.INTERNAL)
        token = otel.attach(set_span_in_context(span))
        try:
            yield
        except Exception as exc:
            _fail(span, Failure.of(exc))
            raise
        finally:
            otel.detach(token)
            span.end()

    @contextmanager
    def publish(self, subscription: str, topic: str, message_id: str, trace: str | None) -> Iterator[None]:
        attributes = {"messaging.message.id": message_id, "holdfast.subscription": subscription}
        span = self._span("publish", topic, topic, attributes, links=_links(_span_context(trace)))
        token = otel.attach(set_span_in_context(span))
        try:
            yield
        except Exception as exc:
            _fail(span, Failure.of(exc))
            raise
        finally:
            otel.detach(token)
            span.end()

    def _attempt(self, worker: str, attempt: Attempt, parent: Context | None, made: SpanContext | None) -> Span:
        job = attempt.claimed
        attributes = {
            "messaging.message.id": str(job.id),
            "holdfast.job": job.id,
            "holdfast.kind": job.kind,
            "holdfast.queue": job.queue,
            "holdfast.attempt": job.attempt,
            "holdfast.chain": job.chain_id,
            "holdfast.worker": worker,
        }
        return self._span("attempt", job.kind, job.queue, attributes, parent=parent, links=_links(made))

    def _batch(self, worker: str, attempts: Sequence[Attempt]) -> Span:
        job = attempts[0].claimed
        attributes = {
            "messaging.batch.message_count": len(attempts),
            "holdfast.kind": job.kind,
            "holdfast.queue": job.queue,
            "holdfast.worker": worker,
        }
        return self._span("batch", job.kind, job.queue, attributes)

    def _span(  # noqa: PLR0913 - the parts of a span
        self,
        operation: Literal["publish", "attempt", "batch"],
        of: str,
        destination: str,
        attributes: dict[str, Any],
        *,
        parent: Context | None = None,
        links: Sequence[Link] = (),
    ) -> Span:
        messaging = {
            "messaging.system": "holdfast",
            "messaging.operation.name": operation,
            "messaging.operation.type": "send" if operation == "publish" else "process",
            "messaging.destination.name": destination,
        }
        return self._started(
            f"holdfast.{operation} {of}",
            messaging | attributes,
            # Ignore the active span: the worker may have been started inside one.
            context=otel.Context() if parent is None else parent,
            kind=SpanKind.PRODUCER if operation == "publish" else SpanKind.CONSUMER,
            links=links,
        )

    def _started(self, name: str, attributes: dict[str, Any], **more: Any) -> Span:
        try:
            return self._tracer.start_span(name, attributes=attributes, **more)
        except Exception:
            # Raised by a sampler or processor of the application.
            log.exception("a span could not be started")
            return INVALID_SPAN


def _set_outcomes(spans: Sequence[Span], outcomes: Sequence[Outcome | None]) -> None:
    # In a large batch only the first attempts have spans.
    for span, outcome in zip(spans, outcomes, strict=False):
        span.set_attribute("holdfast.outcome", "lost" if outcome is None else _OUTCOMES[type(outcome)])
        if isinstance(outcome, Retried | Failed):
            _fail(span, outcome.failure)


def _fail(span: Span, failure: Failure) -> None:
    """Record the error as it is stored: normalized and bounded, without payload and traceback."""
    span.set_attribute("error.type", failure.code)
    span.set_status(Status(StatusCode.ERROR, failure.text))


def _made_in(attempt: Attempt) -> SpanContext | None:
    return _span_context(trace_in(attempt.claimed.read_headers()))


def _span_context(trace: str | None) -> SpanContext | None:
    if trace is None:
        return None
    _, trace_id, span_id, flags = trace.split("-")
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16)))


def _parent(made: SpanContext | None) -> Context | None:
    return None if made is None else set_span_in_context(NonRecordingSpan(made), otel.Context())


def _links(made: SpanContext | None) -> list[Link]:
    return [] if made is None else [Link(made)]


# Recording one value in an SDK histogram takes a tenth of a job's time, so at most this many per second and series.
MOST_A_SECOND = 50.0


class SeriesMeter:
    """Counters and gauges are read on export. Histograms cannot be read, so values are pushed to them."""

    def __init__(self, provider: MeterProvider, series: Series) -> None:
        self._series = series
        meter = provider.get_meter("holdfast", version())
        self._histograms: dict[Instrument, Histogram] = {}
        self._allowed: dict[tuple[Instrument, Labels], tuple[float, float]] = {}
        """The remaining allowance, and the time at which it was computed."""
        for it in series.instruments:
            match it.sort:
                case "histogram":
                    self._histograms[it] = meter.create_histogram(
                        it.name, it.unit, it.description, explicit_bucket_boundaries_advisory=list(it.bounds)
                    )
                case "counter":
                    meter.create_observable_counter(it.name, [partial(self._observe, it)], it.unit, it.description)
                case "gauge":
                    meter.create_observable_gauge(it.name, [partial(self._observe, it)], it.unit, it.description)

    def spread(self, instrument: Instrument, labels: Labels, values: Sequence[float]) -> None:
        """Record values in a histogram. If there are too many, an even sample of them."""
        if not (limit := self._take(instrument, labels, len(values))):
            return
        histogram, attributes = self._histograms[instrument], _attributes(instrument, labels)
        for value in values[:: -(-len(values) // limit)]:
            histogram.record(value, attributes)

    def _take(self, instrument: Instrument, labels: Labels, wanted: int) -> int:
        """Return how many values may be recorded in a series now."""
        now = time.monotonic()
        left, at = self._allowed.get((instrument, labels), (MOST_A_SECOND, now))
        left = min(MOST_A_SECOND, left + (now - at) * MOST_A_SECOND)
        taken = min(wanted, int(left))
        self._allowed[instrument, labels] = (left - taken, now)
        return taken

    def _observe(self, instrument: Instrument, _: CallbackOptions) -> Iterator[Observation]:
        for labels, value in self._series.numbers(instrument).items():
            yield Observation(value, _attributes(instrument, labels))


def _attributes(instrument: Instrument, labels: Labels) -> dict[str, str]:
    return dict(zip((*instrument.labels, DATABASE), labels, strict=False))
