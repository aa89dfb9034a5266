"""Sleeping and waking: who is asleep is a row, so that an enqueue knows whether there is anyone to wake."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.store.statement import Row, Statement, statements, text_array

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import timedelta

CHANNEL = "holdfast"
RECORD_SECONDS = 10.0
"""How long a record of a sleeper lasts."""


class Horizon(NamedTuple):
    """What a sleeper must know before it closes its eyes."""

    xmax: str
    """A transaction older than this may have looked for sleepers too early, and will wake nobody."""
    next_due: timedelta | None
    """How long until the next scheduled job is due."""


def channel_of(worker: int) -> str:
    return f"{CHANNEL}_{worker}"


def lie_down(worker: int, queues: Iterable[str], kinds: Iterable[str]) -> Statement[None]:
    """Record that the worker sleeps. After it has committed, look once more before sleeping."""
    params: dict[str, str | int] = {"worker": worker, "queues": text_array(queues), "kinds": text_array(kinds)}
    return Statement(statements()["lie_down"], params, lambda _: None)


def rise(worker: int) -> Statement[None]:
    return Statement(statements()["rise"], {"worker": worker}, lambda _: None)


def wake_sleepers(queues: Iterable[str], kinds: Iterable[str]) -> Statement[None]:
    """Wake two sleepers for each of these queues and kinds."""
    pairs = [(queue, kind) for queue in queues for kind in kinds]
    params = {"queues": text_array(queue for queue, _ in pairs), "kinds": text_array(kind for _, kind in pairs)}
    return Statement(statements()["wake_sleepers"], params, lambda _: None)


def look_ahead(
    worker: int | None, queues: Sequence[str] | None = None, kinds: Iterable[str] | None = None
) -> Statement[Horizon]:
    """Ask in a statement of its own, after the record has committed. Without queues or kinds: as registered."""
    params: dict[str, str | int | None] = {
        "worker": worker,
        "queues": None if queues is None else text_array(sorted(queues)),
        "kinds": None if kinds is None else text_array(sorted(kinds)),
    }
    return Statement(statements()["look_ahead"], params, lambda rows: Horizon._make(rows[0]))


def others_ended(xmax: str) -> Statement[bool]:
    """Tell whether every transaction that was under way at the horizon has ended."""
    return Statement(statements()["others_ended"], {"xmax": xmax}, _only)


def _only(rows: Sequence[Row]) -> bool:
    answer: bool = rows[0][0]
    return answer
