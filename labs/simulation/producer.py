"""Producers: they enqueue into one database at a rate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from random import Random

    import simpy

    from labs.simulation.database import Database

STEP = 0.0125
"""Jobs that are enqueued within so many seconds form a parcel."""


class Producer:
    """Enqueues into a queue while the database is up. `lost` counts the jobs that could not be enqueued."""

    def __init__(  # noqa: PLR0913 - what a load consists of
        self,
        env: simpy.Environment,
        database: Database,
        rate: Callable[[float], float] | float,
        random: Random,
        *,
        queue: str = "default",
        per_call: float = 1.0,
        step: float = STEP,
    ) -> None:
        """`rate`: jobs per second, or a function of the time. `per_call`: jobs in one call."""
        self._env, self._database, self._random = env, database, random
        self._rate = rate if callable(rate) else lambda _: rate
        self._queue, self._per_call, self._step = queue, per_call, step
        self.refused = 0
        env.process(self._run())

    def _run(self) -> Generator[simpy.Event, None, None]:
        yield self._env.timeout(self._random.uniform(0, self._step))
        while True:
            count = poisson(self._random, self._rate(self._env.now) * self._step)
            if count and self._database.up:
                self._database.enqueue(self._queue, count, per_call=min(self._per_call, count))
            else:
                self.refused += count
            yield self._env.timeout(self._step)


def poisson(random: Random, mean: float) -> int:
    """Return a random number of arrivals; for large means the normal approximation."""
    if mean > 30:
        return max(0, round(random.gauss(mean, math.sqrt(mean))))
    limit, count, product = math.exp(-mean), 0, random.random()
    while product > limit:
        count, product = count + 1, product * random.random()
    return count
