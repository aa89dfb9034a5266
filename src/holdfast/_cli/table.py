"""Output of a command: JSON for programs, tables for people, in colour if rich and the terminal allow it."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from holdfast._logs import log as logs
from holdfast._ops.wording import NOTHING, plain, stamp, tone_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

_GAP = "  "
_LONGEST_CELL = 500
_STYLES = {"good": "green", "warn": "yellow", "bad": "bold red", "dim": "dim", "plain": ""}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, for machines")


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False, default=_portable))


def print_done(arguments: argparse.Namespace, message: str, **more: object) -> None:
    """Print what an action did to the thing of this name."""
    if arguments.json:
        print_json({"name": arguments.name, "action": arguments.action, **more})
    else:
        print(f"{arguments.name}: {message}")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    cells = [[text(value) for value in row] for row in rows]
    if is_colourful():
        _print_rich(columns, cells)
    else:
        _print_plain(columns, cells)


def text(value: object) -> str:
    """Return the value on one line, `-` if it is empty."""
    match value:
        case None | "":
            return NOTHING
        case bool():
            return "yes" if value else "no"
        case datetime():
            return stamp(value)
        case timedelta():
            return f"{value.total_seconds():.3f} s"
        case float():
            return f"{value:.3f}"
        case dict() | list():
            shown = json.dumps(value, ensure_ascii=False)
        case _:
            shown = str(value)
    return plain(shown, _LONGEST_CELL)


def is_colourful() -> bool:
    """Return whether to use colour: on a terminal, with rich installed and without NO_COLOR."""
    return logs.is_colourful(sys.stdout) and find_spec("rich") is not None


def _print_plain(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    lines = [[column.upper() for column in columns], *rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    for line in lines:
        print(_GAP.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _print_rich(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=_STYLES[tone_of(cell)]) for cell in row))
    Console(soft_wrap=False).print(table)


def _portable(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return str(value)
