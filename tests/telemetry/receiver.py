"""A real receiver of OTLP over gRPC: what exporters send, kept to be looked at."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import grpc  # type: ignore[import-untyped]
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

if TYPE_CHECKING:
    from types import TracebackType

_PATIENCE = 30.0


class Span(NamedTuple):
    name: str
    kind: int
    trace: str
    id: str
    parent: str
    links: list[tuple[str, str]]
    """Trace and span of each."""
    attributes: dict[str, Any]
    status: int
    answer: str
    """What the status says."""


class Receiver:
    """Listens while its block runs."""

    def __init__(self) -> None:
        self._server = grpc.server(ThreadPoolExecutor(4))
        self._spans: list[Span] = []
        self._points: dict[str, list[Any]] = {}
        self._units: dict[str, str] = {}
        self._lock = threading.Lock()
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(  # type: ignore[no-untyped-call]
            _Traces(self), self._server
        )
        metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(  # type: ignore[no-untyped-call]
            _Metrics(self), self._server
        )
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self.tracers = self._tracer_provider()

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.tracers.shutdown()
        self._server.stop(grace=None).wait()

    def _tracer_provider(self) -> TracerProvider:
        provider = TracerProvider(shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint=f"http://127.0.0.1:{self.port}", insecure=True)
        provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=50))
        return provider

    def meter_provider(self) -> MeterProvider:
        exporter = OTLPMetricExporter(endpoint=f"http://127.0.0.1:{self.port}", insecure=True)
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=200)
        return MeterProvider([reader], shutdown_on_exit=False)

    def keep_spans(self, request: Any) -> None:
        with self._lock:
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    self._spans += map(_span, scope.spans)

    def keep_points(self, request: Any) -> None:
        with self._lock:
            for resource in request.resource_metrics:
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        data = getattr(metric, metric.WhichOneof("data"))
                        self._points[metric.name] = list(data.data_points)
                        self._units[metric.name] = metric.unit

    def spans(self, name: str) -> list[Span]:
        with self._lock:
            return [span for span in self._spans if span.name == name]

    def wait_for_spans(self, name: str, count: int = 1) -> list[Span]:
        """Return the spans of this name when there are so many."""
        self.tracers.force_flush()
        deadline = time.monotonic() + _PATIENCE
        while len(found := self.spans(name)) < count:
            assert time.monotonic() < deadline, (name, found, {span.name for span in self._spans})
            time.sleep(0.01)
        return found

    def points(self, name: str) -> dict[tuple[str, ...], Any]:
        """Return the last points of a metric by the values of their attributes, sorted by their names."""
        with self._lock:
            points = list(self._points.get(name, []))
        return {tuple(value for _, value in sorted(_attributes(p.attributes).items())): p for p in points}

    def names(self) -> dict[str, str]:
        """Return every metric that has come, with its unit."""
        with self._lock:
            return dict(self._units)


class _Traces(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def Export(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802 - as the protocol has it
        self._receiver.keep_spans(request)
        return trace_service_pb2.ExportTraceServiceResponse()


class _Metrics(metrics_service_pb2_grpc.MetricsServiceServicer):
    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def Export(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802 - as the protocol has it
        self._receiver.keep_points(request)
        return metrics_service_pb2.ExportMetricsServiceResponse()


def _span(span: Any) -> Span:
    return Span(
        name=span.name,
        kind=span.kind,
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        links=[(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
        attributes=_attributes(span.attributes),
        status=span.status.code,
        answer=span.status.message,
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
