"""Export of series to OpenTelemetry. Imported only if a provider is given: opentelemetry-api is an extra."""

from __future__ import annotations

import time
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

from opentelemetry.metrics import Observation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from opentelemetry.metrics import CallbackOptions, Histogram, MeterProvider

    from holdfast._telemetry.instruments import Instrument
    from holdfast._telemetry.series import Labels, Series

# Recording one value in an SDK histogram takes a tenth of a job's time, so at most this many per second and series.
MOST_A_SECOND = 50.0


class SeriesMeter:
    """Counters and gauges are read on export. Histograms cannot be read, so values are pushed to them."""

    def __init__(self, provider: MeterProvider, series: Series) -> None:
        self._series = series
        meter = provider.get_meter("holdfast", version("holdfast"))
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
        if not (most := self._take(instrument, labels, len(values))):
            return
        histogram, attributes = self._histograms[instrument], _attributes(instrument, labels)
        for value in values[:: -(-len(values) // most)]:
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
    return dict(zip(instrument.labels, labels, strict=True))
