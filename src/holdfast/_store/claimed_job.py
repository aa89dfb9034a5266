"""A claimed job, as the worker that claimed it sees it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


class ClaimedJob(NamedTuple):
    """A claimed job. Every later write is fenced by its first three columns and the worker's id."""

    id: int
    token: int
    queue: str
    kind: str
    payload: str | None
    headers: str | None
    payload_version: int
    attempt: int
    max_attempts: int | None
    priority: int
    available_at: datetime
    chain_id: int
    order_key: str | None
    expired: bool
    """It expired before it started: finish it as cancelled."""
    cancelled: bool
    """It was cancelled while it waited for its order key: finish it as cancelled."""
    young: bool
    """It was enqueued within the last ten minutes, so a payload that is not valid may be for newer code."""
    has_blockers: bool = False
    """It waited for other chains: `read_blockers` returns how they ended."""
    blocker_failed: bool = False
    """One of them did not complete and so this job must not run: finish it as failed."""

    def read_headers(self) -> dict[str, str]:
        headers: dict[str, str] = json.loads(self.headers) if self.headers else {}
        return headers


@dataclass(frozen=True, slots=True)
class Claim:
    """The result of a claim."""

    jobs: list[ClaimedJob]
    again: bool
    """More jobs may be due: the call spent its time on parking jobs of busy order keys, or others held windows."""
    looking: float = 0.0
    """How many seconds the search for due jobs took."""
    next_due: float | None = None
    """Seconds until the next job is due, if all due jobs were claimed."""
    crowded: bool | None = None
    """Whether fewer windows were free than requested; None: it needed none."""
    begins: Mapping[Lane, tuple[datetime, int]] = field(default_factory=dict)
    """The first due job of each lane of which it saw only some windows."""
    promoted: tuple[datetime, int] | None = None
    """The place before which all due scheduled jobs are promoted."""


class Lane(NamedTuple):
    """The jobs that share a floor, in the order of the index."""

    queue: str
    kind: str
    priority: int
