"""Mistakes in Python code, applied in a replica before it starts."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import psycopg

import holdfast._engine.pipeline
import holdfast._engine.registration
import holdfast._engine.runners.schedules
import holdfast._engine.runners.ticker
from holdfast._engine.jobs.claim import Claimer
from holdfast._engine.jobs.complete import Completer
from holdfast._engine.jobs.finish import Finisher
from holdfast._engine.jobs.heartbeat import Heartbeat
from holdfast._engine.jobs.ready import ReadyJobs
from holdfast._engine.jobs.run_handlers import Handlers
from holdfast._engine.jobs.wakeups import Wakeups
from holdfast._engine.keeper import Keeper
from holdfast._model.errors import AbortReason, HoldfastError
from holdfast._model.outcome import Completed
from holdfast._store.claim import REACHES, Floors
from holdfast._store.finish import Answers
from holdfast._store.lease import ClaimAnswer
from holdfast._store.sleeper import look_ahead
from holdfast._store.statement import Statement
from labs.chaos.breaks import common_patches, kinds, relay_patches
from labs.chaos.breaks.mistake import substitute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from holdfast._engine.attempt import Attempt
    from holdfast._engine.keeper import Kept, Role
    from holdfast._engine.link import Link
    from holdfast._model.outcome import Outcome
    from holdfast._store.lease import Held

log = logging.getLogger(__name__)

# How long after the finish the next job of a chain is enqueued when that is a transaction of its own, in seconds.
APART = 0.5


def beat_on_the_loop() -> None:
    async def beats(self: Heartbeat) -> None:
        while not self._ending:
            await asyncio.sleep(self.interval)
            try:
                self._beat()
            except Exception:
                log.exception("heartbeat failed")
                self._close()

    def start(self: Heartbeat, _keeper: object) -> None:
        self.task = self._loop.create_task(beats(self))  # type: ignore[attr-defined]

    substitute(Heartbeat, "start", start)
    substitute(Heartbeat, "end", lambda _: None)


def never_sweep() -> None:
    substitute(Floors, "reach", lambda _: REACHES[0])


def look_no_second_time() -> None:
    async def wait_for_notification(self: Claimer, until: float) -> bool:
        wakes = self._wakes
        next_due = (await self._link.run(look_ahead(self._row.id))).next_due
        if wakes == self._wakes:
            idle = until - time.monotonic()
            await self._rest(idle if next_due is None else min(idle, next_due.total_seconds()))
        return bool(now := self._demand.wanted()) and await self.claim(now)

    substitute(Claimer, "_wait_for_notification", wait_for_notification)


def sleep_never_lightly() -> None:
    async def sleep_lightly(_self: Claimer, _until: float) -> bool:
        return False

    substitute(Claimer, "_sleep_lightly", sleep_lightly)


def go_on_in_another_transaction() -> None:
    answers = Finisher._answers
    tasks: set[asyncio.Task[None]] = set()

    async def enqueue(self: Finisher, chain: int, following: str | None) -> None:
        await asyncio.sleep(APART)
        params = {"next": following, "chain": chain}
        text = (
            "INSERT INTO holdfast.job (created_at, available_at, chain_id, max_attempts, queue, kind, payload)"
            " SELECT now(), now(), %(chain)s, n.max_attempts, n.queue, n.kind, n.payload"
            " FROM json_populate_record(NULL::holdfast.new_job, %(next)s::json) AS n RETURNING id"
        )
        await self._links.finish.run(Statement(text, params, list))

    async def apart(self: Finisher, batch: Sequence[Attempt], link: Link) -> Any:
        outcomes = [attempt.outcome for attempt in batch]
        for attempt, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Completed):
                attempt.outcome = replace(outcome, next=None)
        answer = await answers(self, batch, link)
        for attempt, outcome in zip(batch, outcomes, strict=True):
            attempt.outcome = outcome
            if isinstance(outcome, Completed) and outcome.next is not None:
                tasks.add(asyncio.create_task(enqueue(self, attempt.claimed.chain_id, outcome.next)))
        return answer

    substitute(Finisher, "_answers", apart)


def believe_in_the_finish() -> None:
    answers = Finisher._answers

    async def without_answer(self: Finisher, batch: Sequence[Attempt], link: Link) -> Any:
        await answers(self, batch, link)
        return Answers()

    substitute(Finisher, "_answers", without_answer)


def start_nothing_again() -> None:
    start = Keeper.start

    def once(self: Keeper, role: Role, run: Any, *, detail: str = "", once: bool = False) -> Kept:  # noqa: ARG001
        return start(self, role, run, detail=detail, once=True)

    substitute(Keeper, "start", once)


def end_at_an_answer() -> None:
    answers = Finisher._answers

    async def known(self: Finisher, batch: Sequence[Attempt], link: Link) -> Any:
        answer = await answers(self, batch, link)
        if ClaimAnswer.busy in answer.values():
            # Not an Exception: that would be taken for a refusal of the database.
            raise SystemExit("KeyError: (Completed, 'busy')")
        return answer

    start_nothing_again()
    substitute(Finisher, "_answers", known)


def try_for_ever() -> None:
    """Take every error for an outage."""
    answers = Finisher._answers

    async def for_ever(self: Finisher, batch: Sequence[Attempt], link: Link) -> Any:
        while True:
            try:
                return await answers(self, batch, link)
            except (UnicodeError, psycopg.Error, HoldfastError):
                await asyncio.sleep(0.1)

    substitute(Finisher, "_answers", for_ever)


def keep_at_the_stop() -> None:
    def give_back(_self: ReadyJobs, attempts: Iterable[Attempt]) -> None:
        for attempt in attempts:
            attempt.signal.abort(AbortReason.shutdown)

    def silent(_self: Handlers, attempt: Attempt) -> Outcome | None:
        return None if attempt.signal.reason is AbortReason.shutdown else aborted(_self, attempt)

    aborted = Handlers.aborted
    substitute(ReadyJobs, "give_back", give_back)
    substitute(Handlers, "aborted", silent)
    # The last look for what a lost answer left to us would mend it.
    substitute(holdfast._engine.registration, "release_strays", lambda *_: Statement("SELECT WHERE false", {}, len))


def go_on_without_heartbeat() -> None:
    substitute(Heartbeat, "abort_all", lambda _: None)


def give_up_in_time() -> None:
    ended = ReadyJobs.ended

    def on_time(self: ReadyJobs, attempt: Attempt, outcome: Outcome | None) -> None:
        deadline = attempt.deadline
        ended(self, attempt, outcome)
        attempt.deadline = deadline

    substitute(ReadyJobs, "ended", on_time)


def begin_with_the_first_queue() -> None:
    claim = Claimer._claim

    async def from_the_first(self: Claimer, *given: Any) -> Any:
        self._start = ""
        return await claim(self, *given)

    substitute(Claimer, "_claim", from_the_first)


def count_from_the_jobs_age() -> None:
    substitute(Handlers, "_may_fit_others", lambda _self, _attempt: False)


def count_no_readers() -> None:
    substitute(Completer, "served", lambda _self, _kind: 0)


def trust_the_id() -> None:
    substitute(holdfast._engine.pipeline, "uuid4", lambda: None)


def run_everywhere() -> None:
    def take(_name: str) -> Statement[bool]:
        return Statement("SELECT true", {}, lambda rows: bool(rows[0][0]))

    for module in (holdfast._engine.runners.schedules, holdfast._engine.runners.ticker):
        substitute(module, "take_singleton", take)


def believe_notifications() -> None:
    def lost(self: Wakeups, claim: Held) -> None:
        if (attempt := self._session.held.get(claim)) is not None:
            attempt.abort(AbortReason.cancelled)

    substitute(Wakeups, "lost", lost)


PATCHES: Final[dict[str, Callable[[], None]]] = {
    "heartbeat on the event loop": beat_on_the_loop,
    "floor without sweep": never_sweep,
    "wake-up without the second look": look_no_second_time,
    "light sleep left out": sleep_never_lightly,
    "ending given up after max_runtime": give_up_in_time,
    "claims that begin with the first queue": begin_with_the_first_queue,
    "grace from the job's age": count_from_the_jobs_age,
    "grace that ignores workers that can read it": count_no_readers,
    "identity not checked": trust_the_id,
    "continuation outside the finish": go_on_in_another_transaction,
    "finish that ignores its answers": believe_in_the_finish,
    "finisher that ends at an answer": end_at_an_answer,
    "notification that is believed": believe_notifications,
    "loop that is not restarted": start_nothing_again,
    "shutdown that releases nothing": keep_at_the_stop,
    "worker that goes on without heartbeat": go_on_without_heartbeat,
    "singleton without lock": run_everywhere,
    **{f"outage because {name}": try_for_ever for name in kinds.SPOILT},
    **relay_patches.PATCHES,
    **common_patches.PATCHES,
}
