"""Completing a job in its handler's own transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.chain import Continue
from holdfast.errors import HoldfastError, LeaseLost
from holdfast.outcome import Completed
from holdfast.store.finish import complete_job

if TYPE_CHECKING:
    from holdfast.codec import JsonCodec
    from holdfast.store.finish import Answer
    from holdfast.store.lease import Held
    from holdfast.store.statement import Statement


class Completion:
    """How one attempt is completed from within."""

    def __init__(self, worker: int, held: Held, kind: str, codec: JsonCodec) -> None:
        self._worker = worker
        self._held = held
        self._kind = kind
        self._codec = codec

    def statement(self, result: object) -> Statement[Answer]:
        outcome = completed(result, self._codec, self._kind)
        return complete_job(self._worker, self._held, outcome.result, outcome.next)

    def check(self, answer: Answer) -> None:
        """Return if the job is completed once the transaction commits."""
        match answer:
            case "completed":
                return
            case "busy":
                raise HoldfastError(f"job {self._held.id} could not be completed: somebody keeps its row locked")
            case "pending" | "failed" | "cancelled":
                raise HoldfastError(f"job {self._held.id} is {answer}")
            case reason:
                raise LeaseLost(reason)


def completed(result: object, codec: JsonCodec, kind: str) -> Completed:
    """Return how a job ends whose handler returned this: a value, or a Continue."""
    if isinstance(result, Continue):
        return Completed(next=result.job.as_json())
    return Completed(None if result is None else codec.encode(result, kind=kind))
