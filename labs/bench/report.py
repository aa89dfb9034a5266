"""report.md: people write the text, the measurements the figures between the markers.

The tables behind the figures are in results.md, beside this file.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from labs.bench.ground import version

if TYPE_CHECKING:
    from labs.bench.figure import Section

DOCUMENT = Path(__file__).with_name("report.md")
TABLES = Path(__file__).with_name("results.md")


def write(name: str, section: Section) -> None:
    """Replace the figures of one measurement, its charts, and the tables behind them."""
    machine = f"PostgreSQL {version()}, {os.cpu_count()} cores."
    DOCUMENT.write_text(replaced(DOCUMENT.read_text("utf-8"), name, f"{machine}\n\n{section.summary()}"), "utf-8")
    if section.tables:
        TABLES.write_text(replaced(TABLES.read_text("utf-8"), name, "\n\n".join([machine, *section.tables])), "utf-8")
    for chart, svg in section.charts.items():
        (DOCUMENT.parent / "charts" / f"{chart}.svg").write_text(svg, "utf-8")


def replaced(text: str, name: str, figures: str) -> str:
    """Return the document with other figures between the markers of this measurement."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    text, found = pattern.subn(lambda match: f"{match[1]}\n{figures}\n\n{match[2]}", text)
    if found != 1:
        raise ValueError(f"the document has no place for {name}, or more than one")
    return text
