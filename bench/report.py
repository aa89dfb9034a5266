"""docs/explanation/benchmarks.md: people write the text, the measurements the figures between the markers."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from bench.ground import version

if TYPE_CHECKING:
    from bench.figure import Section

DOCUMENT = Path(__file__).parent.parent / "docs" / "explanation" / "benchmarks.md"


def write(name: str, section: Section) -> None:
    """Replace the figures of one measurement, and its charts."""
    text = DOCUMENT.read_text("utf-8")
    machine = f"PostgreSQL {version()}, {os.cpu_count()} cores."
    DOCUMENT.write_text(replaced(text, name, f"{machine}\n\n{section.markdown()}"), "utf-8")
    for chart, svg in section.charts.items():
        (DOCUMENT.parent / "benchmarks" / f"{chart}.svg").write_text(svg, "utf-8")


def replaced(text: str, name: str, figures: str) -> str:
    """Return the document with other figures between the markers of this measurement."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    text, found = pattern.subn(lambda match: f"{match[1]}\n{figures}\n\n{match[2]}", text)
    if found != 1:
        raise ValueError(f"the document has no place for {name}, or more than one")
    return text
