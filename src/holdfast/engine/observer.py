"""Listeners that are told of many jobs at once, so that they cost little; and spans around what a worker does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from holdfast.engine.attempt import Attempt
    from holdfast.engine.ticker import Ticked
    from holdfast.engine.transition import Name, Transition
    from holdfast.new_job import NewJob
    from holdfast.outcome import Outcome
    from holdfast.store.claim import ClaimedJob
    from holdfast.store.reap import ReapedJob

    Endings: TypeAlias = Callable[[Sequence[Outcome | None]], None]


@runtime_checkable
class Observer(Protocol):
    """Stands among the listeners. Called in the worker's loop, by the worker's name; what it raises is logged."""

    @property
    def spans(self) -> Spans | None:
        """What is put around attempts and publishing; None: nothing."""
        ...

    def __call__(self, transition: Transition, /) -> None:
        """Hear a transition that is not one of a job."""

    def enqueued(self, jobs: Sequence[NewJob[Any]]) -> None:
        """Hear of jobs that this process enqueued, in a transaction that may not have committed yet."""

    def claimed(self, worker: str, jobs: Sequence[ClaimedJob], seconds: float) -> None:
        """Hear of one claim, which may have found nothing."""

    def ended(self, worker: str, names: Sequence[Name], attempts: Sequence[Attempt]) -> None:
        """Hear of attempts whose ending is written, or that were lost: of each, by its transition's name."""

    def reaped(self, worker: str, jobs: Sequence[ReapedJob]) -> None:
        """Hear of one pass of a reaper, which may have found nothing."""

    def ticked(self, worker: str, ticked: Ticked) -> None:
        """Hear of a tick that was not skipped."""

    def relayed(self, worker: str, subscription: str, *, confirmed: int = 0, refused: int = 0) -> None:
        """Hear of events that became jobs or were confirmed by a sink, and of tries that it refused."""


class Spans(Protocol):
    def attempts(self, worker: str, attempts: Sequence[Attempt]) -> AbstractContextManager[Endings]:
        """Surround one call of a handler; it is told the outcomes, in the order of the attempts."""
        ...

    def publish(
        self, subscription: str, topic: str, message_id: str, trace: str | None
    ) -> AbstractContextManager[None]:
        """Surround one try to hand an event over; `trace`: of who published it."""
        ...
