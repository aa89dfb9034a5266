"""A fault, and the site that faults act on."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from labs.chaos.fleet import Fleet
    from labs.chaos.ground import Ground
    from labs.chaos.pace import Pace
    from labs.chaos.producer import Producer
    from labs.chaos.publisher import Publisher


@dataclass(slots=True)
class Site:
    """The things that a fault may use."""

    ground: Ground
    fleet: Fleet
    load: Producer
    publisher: Publisher
    pace: Pace
    folder: Path
    """For files of the lab's own; gone at the end."""
    quiet: bool = False
    begun: float = field(default_factory=time.monotonic)
    begun_at: float = field(default_factory=time.time)
    """The same moment by the clock on the wall."""

    @property
    def lease(self) -> float:
        return self.pace.lease

    @property
    def reap(self) -> float:
        return self.pace.reap

    def say(self, text: str) -> None:
        if not self.quiet:
            print(f"{time.monotonic() - self.begun:7.1f}  {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that happens to a site, and how the lab, as an operator would, makes it good."""

    name: str
    """Plain words; they stand in the report."""
    strike: Callable[[Site, random.Random], AbstractAsyncContextManager[None]]
    """Entering: it is on, and it lets 0.2 to 6 seconds pass itself, chosen from the dice, before it yields.

    Leaving, which the lab does at once: it is healed. From then on recovery is measured.
    """
    alone: bool = False
    """It needs the server to itself, and overlaps no other."""
