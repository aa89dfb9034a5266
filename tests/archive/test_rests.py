"""An export in the background rests in proportion to what it was kept waiting."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from holdfast._archive import rests as module

if TYPE_CHECKING:
    from collections.abc import Callable

    Taken = Callable[[float, float], list[float]]


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> Taken:
    """Return the rests after a row group that took so many seconds, and used the processor for so many."""

    def rests(took: float, used: float) -> list[float]:
        rested: list[float] = []
        times, processor = iter([0.0, took, took]), iter([0.0, used, used])
        clock = SimpleNamespace(
            monotonic=lambda: next(times), process_time=lambda: next(processor), sleep=rested.append
        )
        monkeypatch.setattr(module, "time", clock)
        module.Rests().take()
        return rested

    return rests


def test_an_export_that_never_waited_does_not_rest(rests: Taken) -> None:
    # Two threads may use more than one processor.
    assert rests(0.2, 0.3) == []


def test_an_export_that_was_kept_waiting_rests_longer(rests: Taken) -> None:
    assert rests(0.3, 0.1) == [pytest.approx(4 * 0.2)]


def test_a_rest_has_an_end(rests: Taken) -> None:
    assert rests(60.0, 0.1) == [module.LONGEST]
