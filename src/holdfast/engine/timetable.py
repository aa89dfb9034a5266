"""The stored schedules of one database: which slots are due, and holding the one that runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast.abort import AbortReason
from holdfast.engine.link import LOST
from holdfast.engine.outage import Outage
from holdfast.logs import Log
from holdfast.schedule import parse
from holdfast.store.schedule import (
    Look,
    Slot,
    claim_slot,
    look_at_schedule,
    register_schedules,
    renew_slot,
    set_next,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from holdfast.engine.runner import PeriodicJob, Runner
    from holdfast.engine.site import Site

log = Log(__name__)


class Timetable:
    """Registers what the code declares when it is first needed, so that a database may be down until then."""

    def __init__(
        self,
        site: Site,
        runners: Sequence[Runner],
        periodic: Sequence[PeriodicJob],
        *,
        lease: timedelta,
        heartbeat: timedelta,
    ) -> None:
        self._site = site
        self._declared = [(runner.name, runner.every, None) for runner in runners if runner.every is not None]
        self._periodic = [(job.name, job.every, job.job) for job in periodic]
        self._lease = lease
        self._heartbeat = heartbeat.total_seconds()
        self._registered = False

    async def register(self) -> None:
        """Store what the code declares, once."""
        if self._registered:
            return
        declared = [*self._declared, *self._periodic]
        changed = await self._site.link.run(register_schedules(declared)) if declared else []
        if changed:
            log.info("schedules stored: %s", ", ".join(changed))
        self._registered = True

    async def take(self, name: str) -> Slot | float | None:
        """Take the runner's slot if it is due; else return in how many seconds to look again, if that is known."""
        await self.register()
        look = await self._site.link.run(look_at_schedule(name))
        if look is None:
            self._registered = False
            return None
        if look.next_at is None:
            await self._site.link.run(set_next({name: look.text}, now=look.now))
            return (parse(look.text).next(look.now) - look.now).total_seconds()
        if not look.claimable:
            return _wait(look)
        slot = await self._site.link.run(claim_slot(name, look, worker=self._site.worker, lease=self._lease))
        return 0.0 if slot is None else slot

    async def hold(self, name: str, slot: Slot, abort: Callable[[AbortReason], None]) -> None:
        """Renew the slot's lease until cancelled; `abort` when it is lost, or cannot be renewed in time."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._lease.total_seconds()
        outage = Outage(log, "renew_slot failed, trying again", runner=name)
        rest = self._heartbeat
        while True:
            await asyncio.sleep(rest)
            renewed_at = loop.time()
            try:
                held = await self._site.link.run(renew_slot(name, slot, worker=self._site.worker, lease=self._lease))
            except (*LOST, TimeoutError) as exc:
                rest = outage.failed(exc)
                if loop.time() + self._heartbeat > until:
                    return abort(AbortReason.error)
                continue
            except Exception:
                log.exception("renew_slot failed", extra={"runner": name})
                return abort(AbortReason.error)
            if not held:
                return abort(AbortReason.taken_by_another_worker)
            outage.over()
            rest, until = self._heartbeat, renewed_at + self._lease.total_seconds()


def _wait(look: Look) -> float | None:
    """Return when the answer may be another; None when only somebody's end or a person can change it."""
    times = [look.next_at] if look.next_at is not None and not look.paused else []
    times += [look.locked_until] if look.locked_until is not None else []
    later = [(at - look.now).total_seconds() for at in times if at > look.now]
    return min(later, default=None)
