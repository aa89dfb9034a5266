"""Sleeping and waking: a sleeping worker has a row, so that an enqueue can see whether there is a worker to wake."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast._store.statement import Statement, nothing, number_array, one, statement, text_array, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import timedelta


WORKER_CHANNEL = "holdfast"
RECORD_SECONDS = 10.0
"""How long the record of a sleeper is valid."""


class Horizon(NamedTuple):
    """The limits of a worker's sleep: unfinished transactions, and the next due job."""

    xmax: str
    """A transaction older than this may have looked for sleepers too early and will not wake this one."""
    next_due: timedelta | None
    """The time until the next scheduled job is due."""


def worker_channel(worker: int) -> str:
    return f"{WORKER_CHANNEL}_{worker}"


def record_sleep(worker: int, queues: Iterable[str], kinds: Iterable[str]) -> Statement[None]:
    """Record that the worker sleeps. After the commit, check once more for due jobs before sleeping."""
    return statement("record_sleep", nothing, worker=worker, queues=text_array(queues), kinds=text_array(kinds))


def end_sleep(worker: int) -> Statement[None]:
    return statement("end_sleep", nothing, worker=worker)


def wake_sleepers(queues: Iterable[str], kinds: Iterable[str]) -> Statement[None]:
    """Wake two sleepers for each of these queues and kinds."""
    pairs = [(queue, kind) for queue in queues for kind in kinds]
    return statement(
        "wake_sleepers",
        nothing,
        queues=text_array(queue for queue, _ in pairs),
        kinds=text_array(kind for _, kind in pairs),
    )


def look_ahead(
    worker: int | None, queues: Sequence[str] | None = None, kinds: Iterable[str] | None = None
) -> Statement[Horizon]:
    """Return the horizon; run it in a separate statement, after the record is committed.

    `queues` and `kinds`: default to the registered ones.
    """
    return statement(
        "look_ahead",
        one(Horizon),
        worker=worker,
        queues=None if queues is None else text_array(sorted(queues)),
        kinds=None if kinds is None else text_array(sorted(kinds)),
    )


def others_ended(xmax: str) -> Statement[bool]:
    """Return whether every transaction that was in progress at the horizon has ended."""
    return statement("others_ended", value, xmax=xmax)


CHAIN_CHANNEL = "holdfast_watch"
"""The prefix of the channels on which chain watchers listen."""


def chain_channel(listener: str) -> str:
    """Return the channel on which a watcher receives `ended CHAIN` and `progress CHAIN FRACTION NOTE`."""
    return f"{CHAIN_CHANNEL}_{listener}"


def watch_chains(listener: str, chains: Iterable[int]) -> Statement[None]:
    """Record that a client waits for these chains. After the commit, read the horizon, then the state of the chains."""
    return statement("watch_chains", nothing, listener=listener, chains=number_array(chains))


def forget_watcher(listener: str) -> Statement[None]:
    return statement("forget_watcher", nothing, listener=listener)


def watch_horizon() -> Statement[Horizon]:
    """Return the horizon of a watcher or reader; run it in a separate statement, after the record is committed.

    A transaction older than this may have looked too early and will not notify this one: see `others_ended`.
    """
    return statement("watch_horizon", lambda rows: Horizon(rows[0][0], None))
