"""Keeps several processes running: restarts those that die, and passes on the signals of the parent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING

from holdfast._engine.keeper import backoff
from holdfast._logs.log import Log

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Callable, Sequence

log = Log(__name__)

# The exit status of a worker whose database is refused or has no schema: a restart would end the same way.
REFUSED_STATUS = 5
# The exit status of a supervised worker that has run as many jobs as it was to run: the next process starts at once.
SPENT_STATUS = 6
# A process that ran for this many seconds was healthy: the next death counts as the first again.
WELL_SECONDS = 60.0
# The signals that a process gets for the first, second and third signal to the parent. The process may already have
# received SIGTERM, if a whole group was stopped, so a second SIGTERM must not mean more than the first. By name, since
# this is imported on Windows, too.
_SIGNALS = ("SIGTERM", "SIGQUIT", "SIGKILL")


class Supervisor:
    """Runs a command in several processes, until each has ended with status 0 or all were stopped.

    Each process has its own group, so that a signal from a terminal reaches it once, through the parent. Its standard
    input is a pipe that closes when the parent ends, however that dies.
    """

    def __init__(self, command: Callable[[int], Sequence[str]], processes: int, *, seconds: float = 60.0) -> None:
        """`command(place)`: the command of each place, from 0. `seconds`: time to end after a signal, default 60."""
        self._command = command
        self._processes = processes
        self._seconds = seconds
        self._children: set[Process] = set()
        self._stopping = asyncio.Event()
        self._signals = 0
        self.refused = False
        """Whether the database refuses to be served: no process was restarted."""

    async def run(self) -> bool:
        """Run until all processes have ended. Return whether every one ended well."""
        lifeline, held = os.pipe()
        try:
            ended = await asyncio.gather(*(self._keep(place, lifeline) for place in range(self._processes)))
        finally:
            os.close(lifeline)
            os.close(held)
        return all(ended)

    def signalled(self) -> None:
        """Pass a signal on: the first stops gracefully, the second at once, the third kills."""
        self._signals += 1
        self._stopping.set()
        self._tell_all()
        if self._signals == 1:
            asyncio.get_running_loop().call_later(self._seconds, self._kill)

    def _kill(self) -> None:
        if self._children:
            log.error("processes are killed, since they have not ended in time: %d", len(self._children))
        self._signals = max(self._signals, len(_SIGNALS))
        self._tell_all()

    def _tell_all(self) -> None:
        for child in self._children:
            self._tell(child)

    async def _keep(self, place: int, lifeline: int) -> bool:
        deaths = 0
        while not self._stopping.is_set():
            started = time.monotonic()
            status: int | None = None
            try:
                status = await self._run_once(place, lifeline)
                why = cause(status)
            except OSError as exc:
                # The system cannot create a process: this is temporary, so it counts as a death.
                why = f"it could not be started, {exc.strerror}"
            if status == 0:
                return True
            if status == SPENT_STATUS:
                deaths = 0
                continue
            if status == REFUSED_STATUS:
                # Another process would be refused, too.
                self.refused = True
                return False
            if self._stopping.is_set():
                return False
            deaths = 1 if time.monotonic() - started > WELL_SECONDS else deaths + 1
            pause = backoff(deaths)
            log.error(
                "process died: %s; the next starts in %.1f s",
                why,
                pause,
                extra={"place": place, "status": status, "deaths": deaths},
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stopping.wait()
        return True

    async def _run_once(self, place: int, lifeline: int) -> int:
        child = await asyncio.create_subprocess_exec(*self._command(place), stdin=lifeline, process_group=0)
        self._children.add(child)
        log.info("process started", extra={"place": place, "pid": child.pid})
        if self._stopping.is_set():
            self._tell(child)
        try:
            status = await child.wait()
        finally:
            self._children.discard(child)
        log.info("process ended: %s", cause(status), extra={"place": place, "pid": child.pid})
        return status

    def _tell(self, child: Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(signal.Signals[_SIGNALS[min(self._signals, len(_SIGNALS)) - 1]])


def cause(status: int) -> str:
    """Return why a process ended.

    >>> cause(-9), cause(3)
    ('signal SIGKILL', 'exit code 3')
    """
    if status >= 0:
        return f"exit code {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"
