from __future__ import annotations

import threading

import pytest

from holdfast._telemetry.metrics import ATTEMPT_DURATION, HELD, MOST_SERIES, OTHER, PROCESS, RELAY_PUBLISHED, Series


@pytest.fixture
def series() -> Series:
    return Series(PROCESS)


def test_amounts_add_up_by_their_labels(series: Series) -> None:
    series.add(RELAY_PUBLISHED, {("w", "a"): 2, ("w", "b"): 1})
    series.add(RELAY_PUBLISHED, {("w", "a"): 3})
    assert series.numbers(RELAY_PUBLISHED) == {("w", "a"): 5, ("w", "b"): 1}


def test_a_value_lies_in_the_first_bucket_whose_bound_it_does_not_exceed(series: Series) -> None:
    bounds = ATTEMPT_DURATION.bounds
    series.spread(ATTEMPT_DURATION, ("w", "k"), [0.0, bounds[0], bounds[0] * 1.01, bounds[-1] + 1])
    [(labels, spread)] = series.spreads(ATTEMPT_DURATION).items()
    assert labels == ("w", "k")
    assert spread.buckets == (2, 1, *[0] * (len(bounds) - 2), 1)
    assert spread.total == pytest.approx(bounds[0] * 2.01 + bounds[-1] + 1)


def test_labels_without_end_are_counted_together(series: Series) -> None:
    for number in range(MOST_SERIES + 500):
        series.add(RELAY_PUBLISHED, {("w", str(number)): 1})
        series.spread(ATTEMPT_DURATION, ("w", str(number)), [1.0])
    numbers = series.numbers(RELAY_PUBLISHED)
    assert len(numbers) == MOST_SERIES + 1
    assert numbers[OTHER, OTHER] == 500
    assert sum(numbers.values()) == MOST_SERIES + 500
    assert sum(series.spreads(ATTEMPT_DURATION)[OTHER, OTHER].buckets) == 500


def test_what_a_look_did_not_find_is_gone(series: Series) -> None:
    series.replace({HELD: {("w", "a"): 1, ("w", "b"): 2}})
    series.replace({HELD: {("w", "b"): 3}})
    assert series.numbers(HELD) == {("w", "b"): 3}


def test_threads_lose_nothing(series: Series) -> None:
    def write() -> None:
        for number in range(2_000):
            series.add(RELAY_PUBLISHED, {("w", str(number % 50)): 1})
            series.spread(ATTEMPT_DURATION, ("w", str(number % 50)), [0.01])

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        series.numbers(RELAY_PUBLISHED)
        series.spreads(ATTEMPT_DURATION)
    for thread in threads:
        thread.join()
    assert sum(series.numbers(RELAY_PUBLISHED).values()) == 8_000
    assert sum(sum(spread.buckets) for spread in series.spreads(ATTEMPT_DURATION).values()) == 8_000
