"""Series as OpenTelemetry exports them. Imported where a provider is given: opentelemetry-api is an extra."""

from __future__ import annotations

import time
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

from opentelemetry.metrics import Observation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from opentelemetry.metrics import CallbackOptions, Histogram, MeterProvider

    from holdfast.telemetry.instruments import Instrument
    from holdfast.telemetry.series import Labels, Series

# Putting one value into a histogram of the SDK takes as long as a tenth of a job: of each series, so many a second.
MOST_A_SECOND = 50.0


class SeriesMeter:
    """Counters and gauges are read when they are exported. Histograms cannot be, and are told."""

    def __init__(self, provider: MeterProvider, series: Series) -> None:
        self._series = series
        meter = provider.get_meter("holdfast", version("holdfast"))
        self._histograms: dict[Instrument, Histogram] = {}
        self._allowed: dict[tuple[Instrument, Labels], tuple[float, float]] = {}
        """How many more could be taken, and when that was."""
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
        """Put values into a histogram; where there are too many, an even choice of them."""
        if not (most := self._take(instrument, labels, len(values))):
            return
        histogram, attributes = self._histograms[instrument], _attributes(instrument, labels)
        for value in values[:: -(-len(values) // most)]:
            histogram.record(value, attributes)

    def _take(self, instrument: Instrument, labels: Labels, wanted: int) -> int:
        """Return how many values may be put into a series now."""
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
