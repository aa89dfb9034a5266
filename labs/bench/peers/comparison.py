"""Compares the raw figures: ratios to the bare loop that ran directly before, and the leader of each row."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import quantiles
from typing import TYPE_CHECKING, Any

from labs.bench.peers.roster import BY_NAME, HOLDFAST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from labs.bench.peers.peer import Peer

COUNTED = ("wal", "tuples", "commits", "statements")


@dataclass(frozen=True)
class Entry:
    """One peer's figures. Figures that were not measured are None."""

    peer: Peer
    raw: dict[str, Any]

    def speed(self, name: str, number: int | None = None) -> float | None:
        speeds = self.raw.get("speeds")
        return None if speeds is None else _pick(speeds[name], number)

    def ratio(self, name: str, number: int | None = None) -> float | None:
        """Return a speed against the bare loop's."""
        speed = self.speed(name, number)
        return None if speed is None else speed / _pick(self.raw["bare"][name], number)

    @property
    def drain(self) -> float | None:
        return self.ratio("drain", 0)

    @property
    def pickup(self) -> dict[str, float] | None:
        speeds = self.raw.get("speeds")
        return None if speeds is None else dict(speeds["pickup"])

    @property
    def pickup_ratio(self) -> float | None:
        """The median against the bare loop's."""
        return None if self.pickup is None else self.pickup["p50"] / float(self.raw["bare"]["pickup"]["p50"])

    def counted(self, name: str, *parts: str) -> float | None:
        counts = self.raw.get("counts")
        return None if counts is None else sum(counts[part][name] for part in parts or ("enqueue", "work"))

    @property
    def behind(self) -> tuple[float, float] | None:
        """The drain rate with nothing behind, and with many finished jobs."""
        fresh, behind = self.speed("drain", 0), self.raw.get("behind")
        return None if fresh is None or behind is None else (fresh, behind["drain"])

    @property
    def held(self) -> tuple[float, float] | None:
        """Jobs a second in the first third of the held snapshot, and in the last."""
        held = self.raw.get("held")
        return None if held is None or len(held["points"]) < 4 else thirds(held["points"])

    @property
    def kept(self) -> float | None:
        return None if self.held is None else self.held[1] / self.held[0]


def entries(results: dict[str, Any]) -> list[Entry]:
    """Return them fastest first, as one process drains."""
    found = [Entry(BY_NAME[name], raw) for name, raw in results.items() if name in BY_NAME]
    return sorted(found, key=lambda entry: -(entry.drain or 0))


def ours(found: Sequence[Entry]) -> Entry | None:
    return next((entry for entry in found if entry.peer is HOLDFAST), None)


def thirds(points: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return the rates of the first and the last third of the time, from how many had started when."""
    last = points[-1][0]

    def started(at: float) -> float:
        """Between two reports it went on evenly."""
        before = [0.0, 0.0]
        for point in points:
            if point[0] >= at:
                part = (at - before[0]) / (point[0] - before[0]) if point[0] > before[0] else 1.0
                return before[1] + part * (point[1] - before[1])
            before = list(point)
        return before[1]

    third = last / 3
    return started(third) / third, (points[-1][1] - started(2 * third)) / third


def rates(points: Sequence[Sequence[float]], seconds: float = 2.0) -> list[tuple[float, float]]:
    """Return jobs a second over spans of so many seconds, for a chart."""
    found, begun, before = [], 0.0, 0.0
    for at, started in points:
        if at - begun >= seconds:
            found.append((at, (started - before) / (at - begun)))
            begun, before = at, started
    return found


def p99_by_span(late: Sequence[Sequence[float]], seconds: float = 30.0) -> list[tuple[float, float]]:
    """Return the 99th of a hundred of each span of time."""
    spans: dict[int, list[float]] = {}
    for at, value in late:
        spans.setdefault(int(at // seconds), []).append(value)
    return [
        (span * seconds, quantiles(values, n=100, method="inclusive")[98])
        for span, values in sorted(spans.items())
        if len(values) > 100
    ]


def _pick(value: Any, number: int | None) -> float:
    return float(value if number is None else value[number])
