"""The row that a worker writes when it starts."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast._model.work import Lease
from holdfast._store.worker import register_worker

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from holdfast._model.kind import Kind
    from holdfast._model.settings import Settings
    from holdfast._store.statement import Statement
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from holdfast._model.kind import Kind
    from holdfast._model.settings import Settings

_MS = timedelta(milliseconds=1)


def registration(
    name: str, identity: UUID, *, queues: Iterable[str], kinds: Mapping[str, Kind[Any, Any]], settings: Settings
) -> Statement[int]:
    """Return the statement that registers the worker and returns its new id."""
    lease = Lease(settings.lease.total_seconds())
    return register_worker(
        name,
        queues=queues,
        kinds=kinds,
        identity=identity,
        versions={name: kind.version for name, kind in kinds.items() if kind.version > 1},
        limits={name: kind.work.limit(lease) for name, kind in kinds.items()},
        settings=shown(settings),
    )


def shown(settings: Settings) -> dict[str, int | None]:
    """Return the settings that the outbox statistics show: plain numbers, no secrets."""
    retry = settings.retry
    return {
        "poll_ms": settings.idle_min // _MS,
        "batch_size": settings.batch_size,
        "max_attempts": retry.max_attempts,
        "processing_timeout_ms": settings.lease // _MS,
        "retry_base_ms": retry.delay(1) // _MS,
        "retry_max_ms": max(retry.steps, default=retry.maximum) // _MS,
    }


def uncovered(kinds: Mapping[str, Kind[..., Any]], queues: Iterable[str]) -> Iterator[str]:
    """Return a warning for each thing that keeps a worker of these queues from running jobs."""
    if not kinds:
        yield "no kind is registered, so no job runs: register handlers with @app.job, and import their modules"
        return
    named = {kind.envelope.queue for kind in kinds.values()}
    if lacking := [queue for queue in queues if queue not in named]:
        yield (
            f"no kind names the queue {', '.join(lacking)}: only jobs that are enqueued with `queue=` run there; "
            f"the kinds name {', '.join(sorted(named))}"
        )
