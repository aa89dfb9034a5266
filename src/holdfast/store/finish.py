"""Finishing: however many attempts, however they ended, one call."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

from holdfast.outcome import Cancelled, Completed, Failed, Outcome, Released, Rescheduled, Retried
from holdfast.store.answer import Answer
from holdfast.store.lease import Held
from holdfast.store.statement import Row, Statement, number_array, statements, text_array

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.failure import Failure
    from holdfast.store.claim import ClaimedJob

_MILLISECOND = timedelta(milliseconds=1)
_MOST_MS = 2**31 - 1


class Ending(NamedTuple):
    """How an attempt ended."""

    job: ClaimedJob
    outcome: Outcome
    seconds: float | None = None
    """How long its handler ran; written for endings that leave a row in `attempt`."""
    traceback: str | None = None


def finish_jobs(worker: int, endings: Sequence[Ending], *, careful: bool = False) -> Statement[dict[Held, Answer]]:
    """Write the endings, and answer those that need a word: what the job became, `busy` (ask again), or why it is lost.

    Completions without an order key or a next job take the short way: done, they are not answered. It fails with
    lock_not_available when somebody keeps one of the rows locked: then finish the same endings again, `careful`.
    A next job that cannot be enqueued is refused with DuplicateJob or InvalidJob, and nothing is written.
    """
    plain = [] if careful else [ending for ending in endings if is_plain(ending)]
    others = [] if len(plain) == len(endings) else [ending for ending in endings if careful or not is_plain(ending)]
    params: dict[str, str | int] = {"worker": worker, **_plain_params(plain)}
    if not others:
        return Statement(statements()["complete_jobs"], params, _answers)
    return Statement(
        statements()["finish_jobs"],
        {**params, "endings": f"[{','.join([_ending_json(ending) for ending in others])}]"},
        _answers,
    )


def complete_job(worker: int, held: Held, result: str | None = None, next: str | None = None) -> Statement[Answer]:  # noqa: A002 - the word for it everywhere
    """Complete one claimed job in its handler's own transaction, as the last statement before COMMIT.

    `completed`, or why it is lost: then roll back. Outside READ COMMITTED it is refused with WrongIsolation.
    """
    params = {"id": held.id, "token": held.token, "worker": worker, "result": result, "next": next}
    return Statement(statements()["complete_job"], params, lambda rows: Answer(rows[0][0]))


def is_plain(ending: Ending) -> bool:
    """Whether the job may leave the short way. Even then somebody may wait for its chain: the server sees that."""
    outcome, job = ending.outcome, ending.job
    return type(outcome) is Completed and outcome.next is None and job.order_key is None and not job.has_blockers


def _answers(rows: Sequence[Row]) -> dict[Held, Answer]:
    return {Held(job_id, token): Answer(answer) for job_id, token, answer in rows}


def _plain_params(endings: Sequence[Ending]) -> dict[str, str]:
    tokens = [ending.job.token for ending in endings]
    results = [ending.outcome.result for ending in endings if isinstance(ending.outcome, Completed)]
    return {
        "ids": number_array([ending.job.id for ending in endings]),
        "tokens": number_array(tokens[:1] if len(set(tokens)) == 1 else tokens),
        "results": "{}" if results.count(None) == len(results) else text_array(results),
    }


def _ending_json(ending: Ending) -> str:
    fields: dict[str, Any] = {"id": ending.job.id, "token": ending.job.token}
    if ending.seconds is not None:
        fields["ran_ms"] = min(round(ending.seconds * 1000), _MOST_MS)
    if ending.traceback is not None:
        fields["traceback"] = ending.traceback
    match ending.outcome:
        case Completed(result, following):
            # Spliced in as they are: both are JSON already.
            spliced = {"result": result, "next": following}
            members = [f',"{name}":{text}' for name, text in spliced.items() if text is not None]
            return f"{json.dumps(fields | {'outcome': 'completed'})[:-1]}{''.join(members)}}}"
        case Retried(delay, failure):
            fields |= {"outcome": "retry", "delay_ms": delay // _MILLISECOND} | _failure_fields(failure)
        case Rescheduled(delay):
            fields |= {"outcome": "reschedule", "delay_ms": delay // _MILLISECOND}
        case Released(delay, failure):
            fields |= {"outcome": "released", "delay_ms": delay // _MILLISECOND} | _failure_fields(failure)
        case Failed(failure):
            fields |= {"outcome": "failed"} | _failure_fields(failure)
        case Cancelled(failure):
            fields |= {"outcome": "cancelled"} | _failure_fields(failure)
        case never:
            assert_never(never)
    return json.dumps(fields)


def _failure_fields(failure: Failure | None) -> dict[str, str]:
    return {} if failure is None else {"error_code": failure.code, "error": failure.text}
