"""Renewing: extends all leases of a worker with one statement."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from holdfast._store.statement import Row, Statement, number_array, statement, text_array

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

    from holdfast._model.job import Progress
    from holdfast._model.work import Lease


class Held(NamedTuple):
    """The id and token of a claim; with the worker's id they fence every later write."""

    id: int
    token: int


def renew_leases(worker: int, held: Mapping[Held, Lease]) -> Statement[dict[Held, ClaimAnswer]]:
    """Renew these leases; return only the claims with a special state.

    `cancelled`: renewed, but asked to stop. `busy`: still held, but its row is locked now. Any other: why it is lost.
    """
    return statement(
        "renew_leases",
        answers_by_claim,
        worker=worker,
        leases=number_array(lease.milliseconds for lease in held.values()),
        **_ids_and_tokens(held),
    )


def check_claims(worker: int, held: Iterable[Held]) -> Statement[dict[Held, ClaimAnswer]]:
    """Return those of this worker's claims that were cancelled or lost, and why. Writes nothing."""
    return statement("check_claims", answers_by_claim, worker=worker, **_ids_and_tokens(held))


def release_strays(worker: int, held: Iterable[Held], identity: UUID | None = None) -> Statement[int]:
    """Release, uncounted, jobs that this worker claimed but does not hold, because the claim's response was lost.

    Run it only while no claim is in progress. Does nothing if the worker's row does not have this `identity`.
    """
    own = None if identity is None else str(identity)
    return statement("release_strays", len, worker=worker, identity=own, **_ids_and_tokens(held))


def report_progress(worker: int, reports: Mapping[Held, Progress]) -> Statement[set[Held]]:
    """Store the progress of these jobs; return those stored. Jobs that are locked or lost are skipped."""
    return statement(
        "report_progress",
        lambda rows: {Held._make(row) for row in rows},
        worker=worker,
        fractions=text_array(str(progress.fraction) for progress in reports.values()),
        notes=text_array(progress.note for progress in reports.values()),
        **_ids_and_tokens(reports),
    )


def answers_by_claim(rows: Sequence[Row]) -> dict[Held, ClaimAnswer]:
    return {Held(job_id, token): ClaimAnswer(answer) for job_id, token, answer in rows}


def _ids_and_tokens(claims: Iterable[Held]) -> dict[str, str]:
    claims = list(claims)
    return {
        "ids": number_array([claim.id for claim in claims]),
        "tokens": number_array([claim.token for claim in claims]),
    }


class ClaimAnswer(StrEnum):
    """The state of one claim after it was finished, completed, renewed or reaped."""

    completed = "completed"
    failed = "failed"
    pending = "pending"
    """The job returned to its queue."""
    cancelled = "cancelled"
    """The job was cancelled, by this call or earlier; in a renewal: its worker should stop it."""
    busy = "busy"
    """Nothing was written because another transaction has the row locked. Try again."""
    taken_by_another_worker = "taken_by_another_worker"
    already_completed = "already_completed"
    not_found = "not_found"
