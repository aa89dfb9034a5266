"""Timing by turns: what is compared runs alternately, a few milliseconds each, and medians are compared."""

from __future__ import annotations

import gc
import time
from collections import defaultdict
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class Watch:
    """Seconds, by the name of what took them."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, list[float]] = defaultdict(list)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self.seconds[name].append(time.perf_counter() - begun)

    def median(self, *names: str) -> float:
        """Return the sum of the medians of these."""
        return sum(median(self.seconds[name]) for name in names)

    def milliseconds(self, *names: str) -> str:
        return f"{1000 * self.median(*names):.2f} ms"


def alternate(turns: Sequence[Callable[[], object]], rounds: int) -> None:
    """Let everyone have `rounds` turns; who begins changes, so that coming second costs everyone the same."""
    with no_garbage_collection():
        for number in range(rounds):
            for turn in turns if number % 2 else reversed(turns):
                turn()


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
