"""Finishing: stores any number of ended attempts, with any outcomes, in one call."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, assert_never

from holdfast._model.errors import InvalidJob
from holdfast._model.outcome import Cancelled, Completed, Failed, Outcome, Released, Rescheduled, Retried
from holdfast._store.lease import ClaimAnswer, Held
from holdfast._store.statement import Row, Statement, number_array, statement, text_array, value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from holdfast._logs.failure import Failure
    from holdfast._store.claim import ClaimedJob

_MILLISECOND = timedelta(milliseconds=1)
_MOST_SECONDS = 2_000_000.0
_SHORT_SECONDS = 0.0001
_ID: Callable[[Ending], int] = attrgetter("claimed.id")


class Ending:
    """How an attempt ended. The worker's Attempt is one: it is written as it is."""

    __slots__ = ("claimed", "log", "outcome", "seconds", "traceback")

    def __init__(
        self, claimed: ClaimedJob, outcome: Outcome, seconds: float | None = None, traceback: str | None = None
    ) -> None:
        self.claimed: ClaimedJob = claimed
        self.outcome: Outcome = outcome
        self.seconds: float | None = seconds
        """How many seconds its handler ran; None: unknown."""
        self.traceback: str | None = traceback
        self.log: str | None = None
        """The last log records of its handler, if its kind keeps them."""


class Answers(dict[Held, ClaimAnswer]):
    """The resulting state of each job, by its claim."""

    def __init__(
        self, rows: Iterable[tuple[Held, ClaimAnswer]] = (), next_ids: Mapping[int, int] | None = None
    ) -> None:
        super().__init__(rows)
        self.next_ids = next_ids or {}
        """The next job of the chain, by the job that completed."""


def finish_jobs(worker: int, endings: Sequence[Ending], *, careful: bool = False) -> Statement[Answers]:
    """Store the endings; return the new state of each job, `busy` (try again), or why its claim is lost.

    Completions without an order key or a next job use a faster statement; those that succeed are not in the result. It
    fails with lock_not_available when another transaction holds one of the rows: then finish the same endings again
    with `careful`. If a next job cannot be enqueued, it raises DuplicateJob or InvalidJob and writes nothing.
    """
    plain = [] if careful else [ending for ending in endings if is_plain(ending)]
    others = [] if len(plain) == len(endings) else [ending for ending in endings if careful or not is_plain(ending)]
    params: dict[str, str | int] = {"worker": worker, **_plain_params(plain)}
    if not others:
        return statement("complete_jobs", _answers, **params)
    texts = ",".join([_ending_json(ending) for ending in others])
    return statement("finish_jobs", _answers_and_next, **params, endings=f"[{texts}]")


def complete_plain(worker: int, endings: Sequence[Ending]) -> Statement[list[int] | None]:
    """Complete plain endings, on a connection with `pin_plans`; return None, or if some are left the ids of the others.

    It fails with lock_not_available as `finish_jobs` does. Finish those that are left with that.
    """
    return statement("complete_plain", value, worker=worker, **_plain_params(endings))


def complete_job(
    worker: int,
    held: Held,
    result: str | None = None,
    next: str | None = None,  # noqa: A002 - the usual name
    *,
    seconds: float | None = None,
) -> Statement[ClaimAnswer]:
    """Complete one claimed job in its handler's own transaction, as the last statement before COMMIT.

    Returns `completed`, or why the claim is lost: then roll back. Raises WrongIsolation outside READ COMMITTED.
    `seconds`: how long its handler has run.
    """
    return statement(
        "complete_job",
        lambda rows: ClaimAnswer(rows[0][0]),
        id=held.id,
        token=held.token,
        worker=worker,
        result=result,
        next=next,
        ran_ms=_ms(seconds),
    ).storing(InvalidJob)


def complete_batch(worker: int, endings: Sequence[Ending]) -> Statement[Answers]:
    """Complete many claimed jobs in their handler's own transaction, as `complete_job` does one.

    Returns the state of each job: `completed`, or why its claim is lost.
    """
    texts = ",".join([_ending_json(ending) for ending in endings])
    return statement("complete_batch", _answers, worker=worker, endings=f"[{texts}]").storing(InvalidJob)


def is_plain(ending: Ending) -> bool:
    """Return whether the faster statement can complete the job. The server checks for waiters of its chain."""
    outcome, job = ending.outcome, ending.claimed
    return type(outcome) is Completed and outcome.next is None and job.order_key is None and not job.has_blockers


def _answers(rows: Sequence[Row]) -> Answers:
    return Answers((Held(job_id, token), ClaimAnswer(answer)) for job_id, token, answer in rows)


def _answers_and_next(rows: Sequence[Row]) -> Answers:
    return Answers(
        ((Held(job_id, token), ClaimAnswer(answer)) for job_id, token, _, answer in rows),
        {job_id: next_id for job_id, _, next_id, _ in rows if next_id is not None},
    )


def _plain_params(endings: Sequence[Ending]) -> dict[str, str]:
    ran = [_ms(ending.seconds) for ending in endings]
    if len(alike := set(ran)) > 1:
        # Sorted by id, because the server finds each runtime by binary search.
        endings = sorted(endings, key=_ID)
        ran = [_ms(ending.seconds) for ending in endings]
    tokens = [ending.claimed.token for ending in endings]
    results = [ending.outcome.result for ending in endings if isinstance(ending.outcome, Completed)]
    return {
        "ids": number_array([ending.claimed.id for ending in endings]),
        "tokens": number_array(tokens[:1] if len(set(tokens)) == 1 else tokens),
        "results": "{}" if results.count(None) == len(results) else text_array(results),
        "ran": _ms_array(alike if len(alike) == 1 else ran),
    }


def _ms(seconds: float | None) -> float | None:
    if seconds is None:
        return None
    # Times below a tenth of a millisecond count as none, so that a batch of such jobs has one number.
    return 0.0 if seconds < _SHORT_SECONDS else round(min(seconds, _MOST_SECONDS) * 1000, 2)


def _ms_array(times: Iterable[float | None]) -> str:
    return f"{{{','.join(['NULL' if ms is None else str(ms) for ms in times])}}}"


def _ending_json(ending: Ending) -> str:
    fields: dict[str, Any] = {"id": ending.claimed.id, "token": ending.claimed.token}
    if ending.seconds is not None:
        fields["ran_ms"] = _ms(ending.seconds)
    if ending.traceback is not None:
        fields["traceback"] = ending.traceback
    if ending.log is not None:
        fields["log"] = ending.log
    match ending.outcome:
        case Completed(result, following):
            # Inserted as they are, because both are JSON text already.
            spliced = {"result": result, "next": following}
            members = [f',"{name}":{text}' for name, text in spliced.items() if text is not None]
            return f"{json.dumps(fields | {'outcome': 'completed'})[:-1]}{''.join(members)}}}"
        case Retried(delay, failure):
            fields |= {"outcome": "retry", "delay_ms": delay // _MILLISECOND} | _failure_fields(failure)
        case Rescheduled(after):
            fields |= {"outcome": "reschedule"} | _due_fields(after)
        case Released(delay, failure):
            fields |= {"outcome": "released", "delay_ms": delay // _MILLISECOND} | _failure_fields(failure)
        case Failed(failure):
            fields |= {"outcome": "failed"} | _failure_fields(failure)
        case Cancelled(failure):
            fields |= {"outcome": "cancelled"} | _failure_fields(failure)
        case never:
            assert_never(never)
    return json.dumps(fields)


def _due_fields(after: timedelta | datetime) -> dict[str, str | int]:
    if isinstance(after, datetime):
        return {"at": after.astimezone(UTC).isoformat()}
    return {"delay_ms": after // _MILLISECOND}


def _failure_fields(failure: Failure | None) -> dict[str, str]:
    return {} if failure is None else {"error_code": failure.code, "error": failure.text}
