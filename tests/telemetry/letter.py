from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Letter:
    """What a batch takes."""

    number: int
