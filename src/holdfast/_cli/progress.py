"""A line that shows how far a command is: in place on a terminal, otherwise a line now and then."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import argparse

# Seconds between two lines of progress, on a terminal and elsewhere.
_PACE = (0.5, 10.0)
# The beginning of the terminal's line, and nothing on it.
_CLEARED = "\r\x1b[K"
_WIDTH = 20


class ProgressLine:
    """Writes to standard error. On a terminal, the line has a bar, and is gone at the end. Nothing with --json."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._is_hidden = arguments.json
        self._terminal = sys.stderr.isatty()
        self._last = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._terminal and not self._is_hidden:
            print(_CLEARED, end="", file=sys.stderr, flush=True)

    def show(self, part: float, text: str) -> None:
        """Show how much is done, from 0 to 1, and some words, if the last line is old enough."""
        if self._is_hidden or time.monotonic() < self._last + _PACE[0 if self._terminal else 1]:
            return
        self._last = time.monotonic()
        line = f"{_CLEARED}[{bar(part)}] {part:4.0%} {text}" if self._terminal else text
        print(line, end="" if self._terminal else "\n", file=sys.stderr, flush=True)


def bar(part: float) -> str:
    """Return a bar for a part of a whole; `>` at its end: more than the whole.

    >>> bar(0.25), bar(1.5)
    ('#####...............', '###################>')
    """
    if part > 1:
        return "#" * (_WIDTH - 1) + ">"
    return ("#" * int(part * _WIDTH)).ljust(_WIDTH, ".")
