"""The measured costs of calls to the database, and of each job or event in them."""

from __future__ import annotations

import json
from bisect import bisect_left
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeAlias

from holdfast._capacity.speed import Speed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Step: TypeAlias = Literal["enqueue", "claim", "finish", "publish", "relay"]
Table: TypeAlias = Literal["live", "completed", "failed", "event"]


class Cost(NamedTuple):
    """A cost: bytes of WAL, and CPU seconds of the server and of the process that makes the call."""

    wal: float = 0.0
    server: float = 0.0
    client: float = 0.0

    def plus(self, other: Cost) -> Cost:
        return Cost(*(a + b for a, b in zip(self, other, strict=True)))

    def times(self, factor: float) -> Cost:
        return Cost(*(part * factor for part in self))


class StepCost(NamedTuple):
    """The cost of one call, and that of each item in it by the size of its payload."""

    call: Cost
    items: tuple[Cost, ...]


class Idle(NamedTuple):
    """The cost of a worker that has nothing to do, per second."""

    statements: float
    wal: float
    server: float
    client: float


@dataclass(frozen=True, slots=True)
class Costs:
    machine: str
    payloads: tuple[int, ...]
    steps: Mapping[str, StepCost]
    background: float
    """CPU of the whole server under a full load, against that of its calls alone.

    Vacuum, checkpoints and the WAL writer have the rest, and cores that share their caches.
    """
    connect: Cost
    """The cost of a new connection."""
    kept: Mapping[str, tuple[float, ...]]
    """Bytes on disk of a row that is kept, with its indexes, by the size of its payload."""
    connections: int
    """Connections that a worker holds in each database."""
    relay_connections: int
    """Connections that it holds in addition if it has subscriptions."""
    idle: Idle
    reference: Speed
    """The speed of the machine on which they were measured."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the costs of a JSON text as `python -m labs.bench costs` writes it. Times in it are microseconds."""
        found = json.loads(text)
        return cls(
            machine=found["machine"],
            payloads=tuple(found["payloads"]),
            steps={name: _step(step) for name, step in found["steps"].items()},
            background=found["background"],
            connect=Cost(0.0, found["connect"]["server"] / 1e6, found["connect"]["client"] / 1e6),
            kept={name: tuple(sizes) for name, sizes in found["kept"].items()},
            connections=found["connections"]["worker"],
            relay_connections=found["connections"]["relay"],
            idle=Idle(**found["idle"]),
            reference=Speed(**found["reference"]),
        )

    def item(self, step: Step, payload: float, per_call: float = 1.0) -> Cost:
        """Return the cost of one item of this size in bytes, in calls of `per_call` items."""
        cost = self.steps[step]
        parts = (interpolated(self.payloads, [item[part] for item in cost.items], payload) for part in range(3))
        return Cost(*parts).plus(cost.call.times(1 / per_call))

    def call(self, step: Step, payload: float, items: float) -> Cost:
        """Return the cost of one call with this many items."""
        return self.item(step, payload, items).times(items)

    def bytes_kept(self, name: Table, payload: float) -> float:
        """Return the bytes on disk of one row that is kept."""
        return interpolated(self.payloads, self.kept[name], payload)


@cache
def measured() -> Costs:
    """Return the costs that this version of Holdfast was measured with."""
    return Costs.parse(files("holdfast._capacity").joinpath("costs.json").read_text("utf-8"))


def interpolated(sizes: Sequence[float], values: Sequence[float], size: float) -> float:
    """Return the value at this size: on the line between its neighbours, beyond the ends on the last line.

    >>> interpolated((100, 1000), (10.0, 28.0), 600), interpolated((100, 1000), (10.0, 28.0), 2000)
    (20.0, 48.0)
    """
    right = min(max(bisect_left(sizes, size), 1), len(sizes) - 1)
    left = right - 1
    slope = (values[right] - values[left]) / (sizes[right] - sizes[left])
    return max(0.0, values[left] + slope * (size - sizes[left]))


def _step(found: Mapping[str, Any]) -> StepCost:
    call, item = found["call"], found["item"]
    items = zip(item["wal"], item["server"], item["client"], strict=True)
    return StepCost(
        Cost(call["wal"], call["server"] / 1e6, call["client"] / 1e6),
        tuple(Cost(wal, server / 1e6, client / 1e6) for wal, server, client in items),
    )
