"""Watching chains: who waits for which is a row, so that a finish knows whether there is anyone to tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.store.statement import Statement, number_array, statements

if TYPE_CHECKING:
    from collections.abc import Iterable

CHANNEL = "holdfast_watch"
RECORD_SECONDS = 10.0
"""How long a record of a watcher lasts."""


def channel_of(listener: str) -> str:
    """Return the channel on which a watcher hears `ended CHAIN` and `progress CHAIN FRACTION NOTE`."""
    return f"{CHANNEL}_{listener}"


def watch_chains(listener: str, chains: Iterable[int]) -> Statement[None]:
    """Record that somebody waits. After it has committed, take the horizon, then look how the chains stand."""
    params = {"listener": listener, "chains": number_array(chains)}
    return Statement(statements()["watch_chains"], params, lambda _: None)


def forget_watcher(listener: str) -> Statement[None]:
    return Statement(statements()["forget_watcher"], {"listener": listener}, lambda _: None)


def watch_horizon() -> Statement[str]:
    """Ask in a statement of its own, after the record has committed.

    A transaction older than what this answers may have looked for watchers too early, and will tell nobody: see
    `holdfast.store.sleeper.others_ended`.
    """
    return Statement(statements()["watch_horizon"], {}, lambda rows: str(rows[0][0]))
