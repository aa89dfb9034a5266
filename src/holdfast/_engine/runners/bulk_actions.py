"""The built-in runner `bulk_actions`: carries on what operators do to all jobs of a filter."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast._store.bulk_action import PORTION, advance_bulk_action, is_bulk_action_open
from holdfast._store.search import find_replays

if TYPE_CHECKING:
    from holdfast._engine.link import Link
    from holdfast._engine.report.transition import Transitions
    from holdfast._engine.runner import Counts, Tick
    from holdfast._engine.runners.database import RunnerDatabase

# Seconds between two looks for an action that has begun.
LOOK_SECONDS = 5.0
# At most so many seconds between two portions, so that an action that is stopped or due earlier is noticed.
LONGEST_REST = 1.0


class BulkActions:
    """Carries on the bulk actions of one database, each portion in a transaction of its own.

    The row of an action is locked while a portion is acted on, so any number of workers may try.
    """

    def __init__(self, database: RunnerDatabase, transitions: Transitions) -> None:
        self._database = database
        self._transitions = transitions

    async def tick(self, tick: Tick) -> Counts:
        """Carry on until nothing is open, or the budget is used up."""
        tick.look_again(LOOK_SECONDS)
        if await self._database.link.run(is_bulk_action_open()):
            async with self._database.apart() as link:
                await self._carry_on(link, tick)
        return tick.counts

    async def _carry_on(self, link: Link, tick: Tick) -> None:
        while not tick.budget.spent and not tick.signal.aborted:
            portion = await link.run(advance_bulk_action(most=tick.budget.limit(PORTION)))
            if portion is None:
                return
            if portion.ids and self._transitions and portion.action == "retry":
                made = dict(zip(map(int, portion.answers), portion.ids, strict=True))
                self._transitions.enqueued(await link.run(find_replays(made)), "replay")
            tick.count("jobs", len(portion.ids))
            tick.count("refused", portion.refused)
            tick.budget.spend(len(portion.ids) + portion.refused)
            rest = min(portion.wait_ms / 1000, LONGEST_REST)
            if rest and (tick.budget.seconds_left is None or rest < tick.budget.seconds_left):
                with suppress(TimeoutError):
                    async with asyncio.timeout(rest):
                        await tick.signal.wait()
