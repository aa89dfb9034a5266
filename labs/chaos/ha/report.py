"""report.md: the text is written by people, the figures between the markers by the runs."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from labs.bench.chart import lines
from labs.bench.figure import table
from labs.bench.report import replaced
from labs.chaos.ha.cluster import NAMES, WAYS
from labs.chaos.ha.loss import FROZEN, LAGGING, MEMBER, SERVER, SWITCHOVER
from labs.chaos.ha.run import RATE, REPLICAS, SHOWN_BEFORE
from tools.patroni import TIMES, VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from labs.chaos.ha.run import Outcome

DOCUMENT = Path(__file__).with_name("report.md")
SHORT = {SWITCHOVER.name: "switchover", SERVER.name: "server killed", MEMBER.name: "both killed", FROZEN.name: "frozen"}
"""The names of the losses in a picture."""
SHOWN = 70.0
"""So many seconds does a picture show."""


def write(outcomes: Sequence[Outcome], document: Path = DOCUMENT) -> None:
    """Replace the figures, and the pictures."""
    pictures = charts(outcomes)
    main = [one for one in outcomes if one.loss != LAGGING.name]
    parts = [_head(), _table(main), *(f"![{name}](charts/{name}.svg)" for name in pictures)]
    text = replaced(document.read_text("utf-8"), "runs", "\n\n".join(parts))
    text = replaced(text, "lag", _lag([one for one in outcomes if one.loss == LAGGING.name]))
    document.write_text(text, "utf-8")
    folder = document.parent / "charts"
    folder.mkdir(exist_ok=True)
    for name, svg in pictures.items():
        (folder / f"{name}.svg").write_text(svg, "utf-8")


def charts(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """Return the pictures by name."""
    found = {}
    for way in WAYS:
        shown = [one for one in outcomes if one.way == way and one.loss != LAGGING.name]
        series = {SHORT[one.loss]: [point for point in one.throughput if point[0] <= SHOWN] for one in shown}
        title = f"jobs ended per second, through {'an address with ' if ' ' in way else ''}{way}"
        label = f"seconds; the leader is lost at {SHOWN_BEFORE:g}"
        found[way.lower().replace(" ", "-")] = lines(title, label, series)
    return found


def _head() -> str:
    times = ", ".join(f"`{name}: {value}`" for name, value in TIMES.items())
    return (
        f"PostgreSQL {VERSION}, Patroni with {times}, {len(NAMES)} servers, {REPLICAS} workers with the default "
        f"settings, {RATE:g} jobs a second, Python {platform.python_version()}, {os.cpu_count()} cores."
    )


def _table(outcomes: Sequence[Outcome]) -> str:
    head = (
        "loss",
        "address",
        "jobs",
        "lost",
        "run twice",
        "new leader (s)",
        "no job ended for (s)",
        "first job after the leader (s)",
        "longest enqueue (s)",
        "errors of producers",
        "connections before, after",
    )
    rows = [
        (
            one.loss,
            one.way,
            f"{one.jobs:,}",
            str(one.lost),
            str(one.twice),
            f"{one.elected:.1f}",
            f"{one.silence.seconds:.1f}",
            f"{one.resumed:.1f}",
            f"{one.longest_enqueue:.1f}",
            str(sum(one.errors.values())),
            f"{sum(one.before.values())}, {sum(one.after.values())}",
        )
        for one in outcomes
    ]
    return table(head, rows)


def _lag(outcomes: Sequence[Outcome]) -> str:
    head = (
        "replication",
        "jobs",
        "acknowledged transactions lost",
        "jobs that ran and are gone",
        "jobs run twice",
        "longest enqueue (s)",
    )
    rows = [
        (
            "synchronous" if one.synchronous else "asynchronous",
            f"{one.jobs:,}",
            str(one.lost),
            str(one.undone),
            str(one.twice),
            f"{one.longest_enqueue:.1f}",
        )
        for one in outcomes
    ]
    return table(head, rows)
