"""The facts of a database at one moment: the input of the rules in `causes`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast._store.incident import count_held, read_lockers, read_recent_ends, read_signals
from holdfast._store.inspect import read_census
from holdfast._store.schedule import last_runs
from holdfast._store.subscription import list_subscriptions
from holdfast._store.tally import read_tallies
from holdfast._store.worker import list_workers, read_queues

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast._ops.pool import Transaction
    from holdfast._store.incident import KindEnds, Locker, Signals
    from holdfast._store.inspect import Census
    from holdfast._store.schedule import RunLine
    from holdfast._store.subscription import SubscriptionRow
    from holdfast._store.tally import TallyLine
    from holdfast._store.worker import QueueControlRow, WorkerLine

# Workers that have ended are read too: a kind whose last worker ended just now is about to be served again.
_ENDED_WORKERS = 50
# Failures of a kind are counted over so many minutes.
FAILING_MINUTES = 5


class Facts(NamedTuple):
    """From one snapshot."""

    census: Census
    tallies: list[TallyLine]
    ends: list[KindEnds]
    queues: list[QueueControlRow]
    workers: list[WorkerLine]
    """Those that have not stopped, and the latest."""
    held: Mapping[int, int]
    """How many jobs each silent worker holds."""
    subscriptions: list[SubscriptionRow]
    runs: list[RunLine]
    signals: Signals
    lockers: list[Locker]


async def read_facts(transaction: Transaction, minutes: int) -> Facts:
    """Read the facts, with the tallies of the last `minutes`."""
    workers = await transaction.run(list_workers(latest=_ENDED_WORKERS))
    silent = [worker.id for worker in workers if worker.state == "silent"]
    return Facts(
        census=await transaction.run(read_census()),
        tallies=await transaction.run(read_tallies(minutes)),
        ends=await transaction.run(read_recent_ends(FAILING_MINUTES)),
        queues=await transaction.run(read_queues()),
        workers=workers,
        held=await transaction.run(count_held(silent)) if silent else {},
        subscriptions=await transaction.run(list_subscriptions()),
        runs=await transaction.run(last_runs(days=1)),
        signals=await transaction.run(read_signals()),
        lockers=await transaction.run(read_lockers()),
    )
