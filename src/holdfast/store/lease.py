"""Renewing: one statement for every lease that a worker holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.store.answer import Answer
from holdfast.store.statement import Statement, number_array, statements

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from holdfast.lease import Lease


class Held(NamedTuple):
    """A claim, as every later write names it beside the worker's id."""

    id: int
    token: int


def renew_leases(worker: int, held: Mapping[Held, Lease]) -> Statement[dict[Held, Answer]]:
    """Answer with what is not simply renewed.

    `cancelled`: renewed, and asked to stop. `busy`: still ours, but its row is locked just now. Else: lost, and why.
    """
    return Statement(
        statements()["renew_leases"],
        {
            "worker": worker,
            "ids": number_array(claim.id for claim in held),
            "tokens": number_array(claim.token for claim in held),
            "leases": number_array(lease.milliseconds for lease in held.values()),
        },
        lambda rows: {Held(job_id, token): Answer(answer) for job_id, token, answer in rows},
    )


def check_claims(worker: int, held: Iterable[Held]) -> Statement[dict[Held, Answer]]:
    """Answer with those of this worker's claims that were called off or are lost, and why. Writes nothing."""
    claims = list(held)
    return Statement(
        statements()["check_claims"],
        {
            "worker": worker,
            "ids": number_array(claim.id for claim in claims),
            "tokens": number_array(claim.token for claim in claims),
        },
        lambda rows: {Held(job_id, token): Answer(answer) for job_id, token, answer in rows},
    )


def release_strays(worker: int, held: Iterable[Held], identity: UUID | None = None) -> Statement[int]:
    """Give back, uncounted, what this worker claimed and does not know of: the answer was lost on the way.

    Only while no claim of it is under way. Nothing, if the worker's row does not have this `identity`.
    """
    known = list(held)
    params: dict[str, str | int | None] = {
        "worker": worker,
        "identity": None if identity is None else str(identity),
        "ids": number_array(claim.id for claim in known),
        "tokens": number_array(claim.token for claim in known),
    }
    return Statement(statements()["release_strays"], params, len)
