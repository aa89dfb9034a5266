"""Jobs with tenants, straight in the store."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast._model.new_job import Envelope, NewJob

if TYPE_CHECKING:
    from collections.abc import Iterable

    import psycopg

    from holdfast._store.claim import ClaimedJob


def of_tenant(tenant: str | None, *limits: str, kind: str = "k", **options: Any) -> NewJob[Any]:
    """Return a job of this tenant."""
    made = NewJob[Any](Envelope(kind, limits=limits), "{}").options(**options)
    return replace(made, envelope=replace(made.envelope, tenant=tenant))


def set_weights(conn: psycopg.Connection[Any], **weights: int) -> None:
    for tenant, weight in weights.items():
        conn.execute("SELECT holdfast.set_weight(%s, %s)", [tenant, weight])


def tenants(conn: psycopg.Connection[Any], jobs: Iterable[ClaimedJob]) -> list[str | None]:
    """Return the tenants of these running jobs, sorted."""
    ids = [job.id for job in jobs]
    query = "SELECT tenant FROM holdfast.job WHERE id = ANY (%s) ORDER BY tenant"
    return [row[0] for row in conn.execute(query, [ids]).fetchall()]
