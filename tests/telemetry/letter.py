from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Letter:
    """The argument of a batch."""

    number: int
