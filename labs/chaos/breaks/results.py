"""The last result of each broken build, kept beside the code for the report."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

FILE = Path(__file__).with_name("results.json")


@dataclass(frozen=True, slots=True)
class Result:
    build: str
    play: str
    expected: str
    """The check that had to speak."""
    checks: tuple[str, ...]
    """The checks that spoke."""
    sound: bool
    """A sound build went through the same play, and no check spoke."""
    day: str
    """The day on which it was tried, in UTC."""

    @property
    def caught(self) -> bool:
        return self.expected in self.checks


def write(results: Sequence[Result], builds: Sequence[str]) -> None:
    """Write results in place of those of the same builds, in the order of all builds."""
    found = {result.build: result for result in [*read(), *results]}
    FILE.write_text(json.dumps([asdict(found[name]) for name in builds if name in found], indent=1) + "\n")


def read() -> list[Result]:
    return [Result(**one | {"checks": tuple(one["checks"])}) for one in json.loads(FILE.read_text())]


def table() -> str:
    """Return the results as Markdown."""
    lines = ["| broken build | what happens to it | caught by | sound build | tried on |", "|---|---|---|---|---|"]
    for result in read():
        others = [check for check in result.checks if check != result.expected]
        caught = f"**{result.expected}**" if result.caught else f"NOT by {result.expected}"
        by = "; ".join([caught, *others])
        sound = "silent" if result.sound else "NOT SILENT"
        lines.append(f"| {result.build} | {result.play} | {by} | {sound} | {result.day} |")
    return "\n".join(lines) + "\n"
