"""A worker's registration in one database: at the start, again if its row is lost, and its end."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast._engine.link import LOST
from holdfast._logs.log import Log
from holdfast._model.errors import AbortReason
from holdfast._model.work import Lease
from holdfast._store.lease import release_strays
from holdfast._store.limit import declare_limits, mend_limits
from holdfast._store.worker import register_worker, stop_worker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast._engine.application import Application
    from holdfast._engine.session import Session
    from holdfast._engine.wake.listen import Waker
    from holdfast._model.settings import Settings
    from holdfast._store.statement import Statement

log = Log(__name__)

_MS = timedelta(milliseconds=1)
MENDED = 100


class Registration:
    """Writes the row of a worker in one database."""

    def __init__(self, worker: str, queues: Sequence[str], application: Application, session: Session) -> None:
        """`worker`: its name."""
        self._worker = worker
        self._queues = queues
        self._application = application
        self._session = session
        self._renewing: set[asyncio.Task[None]] = set()

    async def register(self) -> bool:
        """Register the worker. Return False if it was stopped meanwhile: then it is registered as stopped."""
        link = self._session.links.claim
        worker = await link.run(self._statement())
        await self._declare_limits()
        if self._session.stopping:
            await link.run(stop_worker(worker, "stopped"))
            return False
        self._session.row.id = worker
        return True

    def renew(self, lost: int, waker: Waker) -> None:
        """Register again: the row with the id `lost` is gone or another's, for example after a restore from a backup.

        The answer to a beat under the old id may arrive after the worker has its new id. It is ignored.
        """
        session = self._session
        if lost == session.row.id and not session.stopping and not self._renewing:
            log.error("the row of this worker is gone or another's: registering anew", extra={"worker": lost})
            session.abort_all(AbortReason.not_found)
            task = asyncio.create_task(self._renew(waker))
            self._renewing.add(task)
            task.add_done_callback(self._renewing.discard)

    async def _renew(self, waker: Waker) -> None:
        try:
            if not await self.register():
                return
        except (*LOST, TimeoutError) as exc:
            log.warning("could not register anew, trying again", extra={"why": str(exc)})
            return
        waker.registered_again()
        # Jobs claimed since then carry the old id, which belongs to another worker.
        self._session.abort_all(AbortReason.not_found)

    async def end(self, reason: str, seconds: float) -> None:
        """Record that the worker stopped, within `seconds`."""
        session = self._session
        link, row = session.links.finish, session.row
        timer = asyncio.get_running_loop().call_later(seconds, link.hurry, 0.0)
        try:
            # A claim that was cancelled because its answer took too long may still have taken jobs.
            await link.run(release_strays(row.id, session.held, row.identity))
            await link.run(stop_worker(row.id, reason, row.identity, counters=session.counters))
        except (*LOST, TimeoutError):
            log.warning("could not record that the worker stopped: %s", reason, extra={"database": session.name})
        finally:
            timer.cancel()

    async def _declare_limits(self) -> None:
        if not (limits := self._application.limits):
            return
        link = self._session.links.claim
        for name in await link.run(declare_limits(limits)):
            until = None
            while True:
                until, _ = await link.run(mend_limits(since=until, name=name, limit=MENDED))
                if until is None:
                    break

    def _statement(self) -> Statement[int]:
        kinds, settings = self._application.kinds, self._application.settings
        lease = Lease(settings.lease.total_seconds())
        return register_worker(
            self._worker,
            queues=self._queues,
            kinds=kinds,
            identity=self._session.row.identity,
            versions={name: kind.version for name, kind in kinds.items() if kind.version > 1},
            limits={name: kind.work.limit(lease) for name, kind in kinds.items()},
            settings={**shown(settings), "heartbeat_ms": settings.heartbeat // _MS},
            app_version=settings.app_version,
        )


def shown(settings: Settings) -> dict[str, int | None]:
    """Return the settings that the outbox statistics show: plain numbers, no secrets."""
    retry = settings.retry
    return {
        "poll_ms": settings.idle_max // _MS,
        "batch_size": settings.batch_size,
        "max_attempts": retry.max_attempts,
        "processing_timeout_ms": settings.lease // _MS,
        "retry_base_ms": retry.delay(1) // _MS,
        "retry_max_ms": max(retry.steps, default=retry.maximum) // _MS,
    }
