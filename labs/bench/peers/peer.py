"""The description of a peer, besides its adapter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Rows = dict[str, dict[str, str]]
"""Tables whose rows may be copied, and how their keys are made anew: `{x}` is the old key, `{n}` the copy's number."""

NUMBER = "{x} - {n} * 1000000"
TEXT = "{x} || '-' || {n}"
RANDOM = "gen_random_uuid()"
EARLIER = "pg_temp.earlier({x}, {n})"
"""For keys that are ordered by the time they carry: as many units earlier."""


BEFORE = "{x} - {n} * interval '1 second'"
"""For the time by which jobs are taken: who is older lies before, as if it had been enqueued before."""


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    adapter: str
    settings: str
    """Its best documented configuration, in a few words."""
    pace: int
    """Jobs a second that one process does, about: what is measured lasts seconds, not hours."""
    lease: str
    """How a job is held, and who may finish it."""
    leases: bool
    """Whether each job has a lease of its own: a time at which others may take it."""
    unfinished: str
    """For PostgreSQL, what follows EXISTS; for Redis, commands whose answers add up to nothing when all is done."""
    python: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    store: Literal["postgres", "redis"] = "postgres"
    rows: Rows = field(default_factory=dict)
    """Empty: a backlog is made by its own API."""
    keeps: bool = True
    """Whether finished jobs stay."""
    language: str = "Python"
