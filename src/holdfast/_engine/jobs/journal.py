"""The journal of one attempt at a story: what was recorded before, what is recorded now, and when it goes on."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from holdfast._logs.failure import only_leaf
from holdfast._model.errors import Aborted, AbortReason, InvalidStep, LeaseLost, StoryChanged
from holdfast._model.failure_record import raised_again, recorded
from holdfast._model.outcome import Busy, Reschedule
from holdfast._model.retry import Retry
from holdfast._model.step import Step
from holdfast._store.step import (
    NewStep,
    count_attempts_anew,
    forget_failures,
    gather_jobs,
    load_steps,
    read_children,
    take_message,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Sequence

    from holdfast._engine.attempt import Attempt
    from holdfast._engine.jobs.recorder import Recorder
    from holdfast._model.codec import JsonCodec
    from holdfast._model.new_job import NewJob
    from holdfast._store.step import At, Child, Kept, Recorded

T = TypeVar("T")

# A story that waits without a limit is due then; a message makes it due before, and so do its children.
NEVER = datetime(9999, 1, 1, tzinfo=UTC)
NO_FAILURES = (Reschedule, Busy, Retry.again, Aborted)
"""Exceptions of a function that are about the job or its attempt, and are not recorded."""
_WAITING = ("waits", "gathers")
_CLAIM_LOST = frozenset({AbortReason.taken_by_another_worker, AbortReason.already_completed, AbortReason.not_found})


@dataclass(slots=True, eq=False)
class Running:
    """A step from its begin to its record."""

    at: At
    by: object
    """The task or thread that has begun it."""
    beside: bool
    """Whether others ran beside it."""


@dataclass(slots=True, eq=False)
class _FailedStep:
    """A step whose failure was raised in this attempt."""

    at: At
    exc: BaseException
    by: object
    begun: int
    """How many steps its task and the handler's own had begun by then."""


class Journal:
    """Finds and records the steps of one attempt. `by` is the task or thread that calls a verb."""

    def __init__(self, attempt: Attempt, recorder: Recorder, codec: JsonCodec) -> None:
        """Create it in the task or thread that calls the first verb of the attempt."""
        self.attempt = attempt
        self.recorder = recorder
        self.codec = codec
        self.retry = attempt.kind.work.retry or Retry()
        """Decides which errors may pass."""
        self._home: object = (attempt.task or current()) if attempt.in_loop else current()
        """The handler's own task, or thread."""
        self._entries: dict[At, Recorded] | None = None
        self._loading = asyncio.Lock()
        self._reached: set[At] = set()
        self._running: set[Running] = set()
        self._saving: set[asyncio.Future[Any]] = set()
        """Tasks that must end before the attempt does."""
        self._failed: list[_FailedStep] = []
        self._begun: dict[object, int] = {}
        self._under: dict[object, list[str]] = {}
        """By task or thread: the transactions in which it has recorded steps."""
        self._uncounted = False
        """Whether a transaction of the handler recorded a step, after which attempts are not counted anew yet."""
        self.counts: Counter[str] = Counter()
        """How many steps were `recorded`, `replayed` or `failed`."""
        self.progressed = False
        """Whether this attempt has recorded anything: attempts are counted from there on."""

    async def reach(self, step: Step, by: object) -> Recorded | None:
        """Return what was recorded under this name; None: it is new."""
        self._check_alive()
        if step.at in self._reached:
            raise InvalidStep(
                f"step {step} was reached twice in one attempt: in a loop, give Step({step.name!r}, key=…)"
            )
        self._reached.add(step.at)
        self._begun[by] = self._begun.get(by, 0) + 1
        async with self._loading:
            if self._entries is None:
                self._entries = await self._load()
        found = self._entries.get(step.at)
        if found is None:
            self._check_unchanged(step, by, self._entries)
        elif found.state not in _WAITING:
            self.counts["replayed"] += 1
        return found

    async def _load(self) -> dict[At, Recorded]:
        held, worker = self.attempt.held, self.recorder.worker
        answer = await self.recorder.ask(lambda: load_steps(worker, held), str, self.attempt.signal)
        if isinstance(answer, str):
            self.lost(answer)
        return answer

    def _check_alive(self) -> None:
        """Raise if the attempt may record nothing any more."""
        if (reason := self.attempt.signal.reason) is not None:
            raise LeaseLost(reason) if reason in _CLAIM_LOST else Aborted(reason)
        if self.attempt.over:
            raise InvalidStep(
                "a step was reached after the attempt had ended: await every task that the handler starts"
            )

    def _check_unchanged(self, step: Step, by: object, entries: dict[At, Recorded]) -> None:
        """Raise StoryChanged if a step that an earlier attempt recorded was not reached before this new one.

        Only the handler's own task has an order that every attempt repeats, and only while nothing runs beside it.
        """
        if by != self._home or self._running:
            return
        for at, entry in entries.items():
            if not entry.beside and at not in self._reached:
                name, key = at
                raise StoryChanged(
                    f"step {step} is new, and step {Step(name, key=key)} was recorded by an earlier attempt and not "
                    "reached: was it renamed or removed while this story ran?"
                )

    @contextmanager
    def run_of(self, step: Step, by: object) -> Iterator[Running]:
        """Note which steps run beside each other."""
        others = list(self._running)
        running = Running(step.at, by, beside=bool(others) or by != self._home)
        for other in others:
            other.beside = True
        self._running.add(running)
        spans, (name, key) = self.attempt.spans, step.at
        try:
            with nullcontext() if spans is None else spans.step(self.attempt, name, key):
                yield running
        finally:
            self._running.discard(running)

    async def save(self, running: Running, text: str) -> None:
        """Record what a function returned, as JSON text."""
        await self._save(NewStep(self.attempt.held, running.at, text, beside=running.beside))

    async def _save(self, entry: NewStep) -> datetime | None:
        saved = await self.recorder.save(entry, self.attempt.signal)
        if saved.answer not in {"kept", "over"}:
            self.lost(saved.answer)
        self.counts["recorded"] += 1
        self.progressed, self._uncounted = True, False
        return None if saved.answer == "over" else saved.due

    async def save_failure(self, running: Running, exc: Exception) -> None:
        """Record a failure before the handler sees it: after a crash it must take the same branch."""
        if isinstance(only_leaf(exc), NO_FAILURES):
            return
        text = self.codec.encode(recorded(exc, self.retry), kind=running.at[0])
        saved = await self.recorder.save(
            NewStep(self.attempt.held, running.at, text, "failed", beside=running.beside), self.attempt.signal
        )
        if saved.answer != "kept":
            self.lost(saved.answer)
        self.counts["failed"] += 1
        self.raises(running.at, exc, running.by)

    def recall_failure(self, step: Step, found: Recorded, by: object) -> Exception:
        """Return the failure that was recorded."""
        fields: Any = self.codec.decode(found.result or "{}")
        exc = raised_again(fields)
        self.raises(step.at, exc, by)
        return exc

    def raises(self, at: At, exc: Exception, by: object) -> None:
        """Note a recorded failure that the handler sees now."""
        self._failed.append(_FailedStep(at, exc, by, self._begun_by(by)))

    def _begun_by(self, by: object) -> int:
        """Return how many steps a task and the handler's own have begun."""
        return self._begun.get(by, 0) + (self._begun.get(self._home, 0) if by != self._home else 0)

    async def mark(self) -> None:
        """Mark a story that has recorded nothing, before a transaction of its handler records its first step.

        A row that is written in an open transaction would be locked for the steps beside it.
        """
        if not self.progressed and not self._entries:
            saved = await self.recorder.save(NewStep(self.attempt.held), self.attempt.signal)
            if saved.answer != "kept":
                self.lost(saved.answer)

    def kept(self, kept: Kept, running: Running) -> None:
        """Note a step that was recorded in a transaction of the handler."""
        if kept.answer != "kept":
            self.lost(kept.answer)
        self._under.setdefault(running.by, []).append(str(kept.under))
        self.counts["recorded"] += 1
        self._uncounted = self.attempt.claimed.attempt > 1
        self.progressed = True

    def lost(self, answer: str) -> NoReturn:
        reason = AbortReason(answer)
        self.attempt.signal.abort(reason)
        raise LeaseLost(reason)

    async def sleep(
        self, step: Step, until: timedelta | datetime, found: Recorded | None, by: object
    ) -> datetime | None:
        """Return until when the story sleeps; None: that is over."""
        if found is None:
            with self.run_of(step, by) as running:
                entry = NewStep(self.attempt.held, step.at, None, "sleep", until, running.beside)
                return await self.finish(self._save(entry))
        if found.state != "sleep":
            raise StoryChanged(f"step {step} sleeps, and was recorded as another verb")
        return None if found.over else found.due

    async def receive(
        self, step: Step, limit: timedelta | None, found: Recorded | None, by: object
    ) -> tuple[datetime | None, str | None]:
        """Return until when the story waits for a message; else its JSON text, or nothing: the time is over."""
        if found is not None and found.state == "received":
            return None, found.result
        if found is not None and found.state != "waits":
            raise StoryChanged(f"step {step} receives a message, and was recorded as another verb")
        with self.run_of(step, by) as running:
            return await self.finish(self._receive(step, limit, running))

    async def _receive(
        self, step: Step, limit: timedelta | None, running: Running
    ) -> tuple[datetime | None, str | None]:
        held, worker = self.attempt.held, self.recorder.worker
        received = await self.recorder.ask(
            lambda: take_message(worker, held, step.at, limit, beside=running.beside),
            lambda received: received.answer,
            self.attempt.signal,
        )
        if received.answer not in {"got", "timeout", "wait"}:
            self.lost(received.answer)
        self.counts["recorded"] += received.answer != "wait"
        self.progressed, self._uncounted = True, False
        return (received.due or NEVER) if received.answer == "wait" else None, received.payload

    async def gather(
        self, step: Step, jobs: Sequence[NewJob[Any]], found: Recorded | None, by: object
    ) -> list[Child] | None:
        """Return how the chains of these jobs ended; None: the story waits for them."""
        if found is not None and found.state == "gathered":
            return read_children(found.result)
        if found is not None and found.state != "gathers":
            raise StoryChanged(f"step {step} gathers jobs, and was recorded as another verb")
        with self.run_of(step, by) as running:
            children = await self.finish(self._gather(step, jobs, running))
        self.counts["recorded"] += children is not None
        if found is None:  # a later look is no progress
            self.progressed, self._uncounted = True, False
        return children

    async def _gather(self, step: Step, jobs: Sequence[NewJob[Any]], running: Running) -> list[Child] | None:
        held, worker = self.attempt.held, self.recorder.worker
        statement = gather_jobs(worker, held, step.at, jobs, beside=running.beside)
        gathered = await self.recorder.ask(lambda: statement, lambda gathered: gathered.answer, self.attempt.signal)
        if gathered.answer not in {"got", "wait"}:
            self.lost(gathered.answer)
        return gathered.children if gathered.answer == "got" else None

    async def finish(self, saving: Coroutine[Any, Any, T]) -> T:
        """Finish this before the attempt ends, even if the current task is cancelled."""
        task = asyncio.ensure_future(saving)
        self._saving.add(task)
        task.add_done_callback(self._finished)
        return await asyncio.shield(task)

    def _finished(self, task: asyncio.Future[Any]) -> None:
        self._saving.discard(task)
        if not task.cancelled():
            task.exception()  # the task that awaited it may be gone

    async def drain(self) -> None:
        """Wait until everything that has run is recorded."""
        while self._saving:
            try:
                await asyncio.wait(self._saving)
            except asyncio.CancelledError:  # the attempt is aborted: recording ends soon, one way or the other
                continue

    async def in_transaction(self, by: object) -> bool:
        """Return whether a transaction in which this task or thread has recorded a step is still open."""
        under = self._under.get(by, [])
        return under != [] and await self.recorder.is_open(under, self.attempt.signal)

    async def failed(self, exc: BaseException) -> None:
        """Let the next attempt call those functions again whose failures ended this one."""
        held, worker, signal = self.attempt.held, self.recorder.worker, self.attempt.signal
        if ended_by := [failed.at for failed in self._failed if self._has_ended(failed, exc)]:
            await self.recorder.ask(lambda: forget_failures(worker, held, ended_by), str, signal)
        if self._uncounted:
            under = [xid for xids in self._under.values() for xid in xids]
            await self.recorder.ask(lambda: count_attempts_anew(worker, held, under), str, signal)

    def _has_ended(self, failed: _FailedStep, exc: BaseException) -> bool:
        """Return whether an error that ended the attempt is this failure, or was raised in place of it."""
        if self._begun_by(failed.by) > failed.begun:
            return False  # the handler went on
        seen: set[int] = set()
        waiting: list[BaseException | None] = [exc]
        while waiting:
            error = waiting.pop()
            if error is None or id(error) in seen:
                continue
            if error is failed.exc:
                return True
            seen.add(id(error))
            waiting += [error.__cause__, error.__context__]
            if isinstance(error, BaseExceptionGroup):
                waiting += error.exceptions
        return False


def current() -> object:
    """Return the current task, or the current thread if no event loop runs in it."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return threading.get_ident()
