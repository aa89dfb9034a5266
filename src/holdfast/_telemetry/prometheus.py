"""Export of series to Prometheus. Imported only if a registry is given: prometheus-client is an extra."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from holdfast._telemetry.metrics import DATABASE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from holdfast._telemetry.metrics import Instrument, Series, Spread


class SeriesCollector(Collector):
    """Reads the series on each scrape and costs nothing in between."""

    def __init__(self, series: Series) -> None:
        self._series = series

    def describe(self) -> Iterator[Metric]:
        """Yield the metrics without values, so that a registry refuses to register them twice."""
        for instrument in self._series.instruments:
            yield _family(instrument)

    def collect(self) -> Iterator[Metric]:
        for instrument in self._series.instruments:
            family = _family(instrument)
            if isinstance(family, HistogramMetricFamily):
                for labels, spread in self._series.spreads(instrument).items():
                    family.add_metric(labels, _buckets(instrument, spread), spread.total)
            else:
                for labels, value in self._series.numbers(instrument).items():
                    family.add_metric(labels, value)
            yield family


def new_registry() -> CollectorRegistry:
    return CollectorRegistry()


def render(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """Return the metrics in the requested format, and its content type."""
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def _family(instrument: Instrument) -> CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily:
    # A series of a single database has no value for the last label, and is shown without it.
    name, description, labels = instrument.prometheus, instrument.description, (*instrument.labels, DATABASE)
    match instrument.sort:
        case "counter":
            return CounterMetricFamily(name, description, labels=labels)
        case "gauge":
            return GaugeMetricFamily(name, description, labels=labels)
        case "histogram":
            return HistogramMetricFamily(name, description, labels=labels)


def _buckets(instrument: Instrument, spread: Spread) -> list[tuple[str, float]]:
    bounds = [*(str(bound) for bound in instrument.bounds), "+Inf"]
    return list(zip(bounds, accumulate(spread.buckets), strict=True))
