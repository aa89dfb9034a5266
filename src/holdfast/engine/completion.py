"""Completing a job in its handler's own transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from holdfast.abort import AbortReason
from holdfast.chain import Continue
from holdfast.errors import HoldfastError, InvalidJob, LeaseLost
from holdfast.outcome import Completed
from holdfast.store.answer import Answer
from holdfast.store.finish import complete_job
from holdfast.trace import TRACEPARENT, current_trace, trace_in

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from holdfast.codec import JsonCodec
    from holdfast.new_job import NewJob
    from holdfast.result import Result
    from holdfast.store.lease import Held
    from holdfast.store.statement import Statement


class Completion:
    """How one attempt is completed from within."""

    def __init__(  # noqa: PLR0913 - what a completion names
        self,
        worker: int,
        held: Held,
        *,
        kind: str,
        codec: JsonCodec,
        headers: Mapping[str, str],
        returns: Result | None,
    ) -> None:
        self._worker = worker
        self._returns = returns
        self._headers = headers
        self._held = held
        self._kind = kind
        self._codec = codec

    def statement(self, result: object) -> Statement[Answer]:
        outcome = completed(result, self._codec, self._kind, self._headers, self._returns)
        return complete_job(self._worker, self._held, outcome.result, outcome.next)

    def check(self, answer: Answer) -> None:
        """Return if the job is completed once the transaction commits."""
        match answer:
            case Answer.completed:
                return
            case Answer.busy:
                raise HoldfastError(f"job {self._held.id} could not be completed: somebody keeps its row locked")
            case Answer.pending | Answer.failed:
                raise HoldfastError(f"job {self._held.id} is {answer}")
            case Answer.taken_by_another_worker | Answer.already_completed | Answer.not_found | Answer.cancelled:
                raise LeaseLost(AbortReason(answer))
            case never:
                assert_never(never)


def completed(
    result: object,
    codec: JsonCodec,
    kind: str,
    headers: Mapping[str, str] | None = None,
    returns: Result | None = None,
) -> Completed:
    """Return how a job ends whose handler returned this: a value, or a Continue.

    `headers`: those of the job; `returns`: the type of its result; None: not known here.
    """
    if isinstance(result, Continue):
        return Completed(next=_following(result.job, headers))
    if result is None:
        return Completed()
    return Completed(codec.encode(result if returns is None else returns.plain(result), kind=kind))


def _following(job: NewJob[Any], headers: Mapping[str, str] | None) -> str:
    """Return the job that follows: given no headers, it has those of the job before it, and the present trace."""
    trace = current_trace()
    if trace is not None and (job.envelope.headers or headers == {}):
        return job.as_json(trace)
    if trace is None or not headers or trace_in(headers) == trace:
        return job.as_json()
    try:
        return job.options(headers={**headers, TRACEPARENT: trace}).as_json()
    except (InvalidJob, TypeError):
        # Somebody wrote them in SQL: they are handed on as they are.
        return job.as_json()
