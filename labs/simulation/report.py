"""report.md: people write the text, the simulation the figures between the markers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from labs.bench import chart
from labs.bench.figure import table
from labs.bench.report import replaced

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from labs.simulation.scenarios import Run
    from labs.simulation.validation import Check

DOCUMENT = Path(__file__).with_name("report.md")


def described(name: str, run: Run) -> tuple[str, dict[str, str]]:
    """Return a scenario in Markdown, and its picture as SVG by file name."""
    rows = [(fact.what, f"{number(fact.value)} {fact.unit}".strip()) for fact in run.facts]
    parts, pictures = [run.text, table(("", "simulated"), rows)], {}
    if run.lines:
        pictures[name] = chart.lines(run.picture, "seconds", run.lines)
        parts.append(f"![{run.title}](charts/{name}.svg)")
    return "\n\n".join(parts), pictures


def checked(checks: Sequence[Check]) -> str:
    """Return the validation in Markdown."""
    rows = [
        (
            check.what,
            str(check.processes),
            str(check.databases),
            f"{number(check.simulated)} {check.unit}",
            f"{number(check.measured)} {check.unit}",
            f"{check.ratio:.2f}",
        )
        for check in checks
    ]
    return table(("", "workers", "databases", "simulated", "real", "ratio"), rows)


def write(name: str, text: str, pictures: Mapping[str, str]) -> None:
    """Replace the figures of one scenario, and its picture."""
    DOCUMENT.write_text(replaced(DOCUMENT.read_text("utf-8"), name, text), "utf-8")
    for picture, svg in pictures.items():
        (DOCUMENT.parent / "charts").mkdir(exist_ok=True)
        (DOCUMENT.parent / "charts" / f"{picture}.svg").write_text(svg, "utf-8")


def number(value: float) -> str:
    """Return three figures.

    >>> number(1234567.0), number(0.01234), number(0.0)
    ('1,230,000', '0.0123', '0')
    """
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 1000 or rounded == int(rounded) else f"{rounded:.3g}"
