"""Several processes kept running: those that die are started again, and the signals of the parent are passed on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from typing import TYPE_CHECKING

from holdfast.logs import Log

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Callable, Sequence

log = Log(__name__)

# The exit status of a worker whose database is refused, or has no schema: another start would end the same way.
REFUSED_STATUS = 5
SHORTEST_PAUSE = 0.1
LONGEST_PAUSE = 30.0
# A process that ran for this long was well: the next death is its first again.
WELL_SECONDS = 60.0
# What a process is sent for the first, the second and the third signal of ours. It may have had SIGTERM already, from
# whoever stops a whole group of processes, so that another one must not mean more.
_SIGNALS = (signal.SIGTERM, signal.SIGQUIT, signal.SIGKILL)


class Supervisor:
    """Runs a command in so many places at once, until each has ended with status 0 or all were told to stop.

    Each process has a group of its own, so that what a terminal sends reaches it once, through us. Its standard input
    is a pipe that ends when we do, however we die.
    """

    def __init__(self, command: Callable[[int], Sequence[str]], processes: int, *, seconds: float = 60.0) -> None:
        """`command(place)`: for each place from 0 on. `seconds`: after a signal, how long processes have to end."""
        self._command = command
        self._processes = processes
        self._seconds = seconds
        self._children: set[Process] = set()
        self._stopping = asyncio.Event()
        self._signals = 0
        self.refused = False
        """The database will not be served: no process was started again."""

    async def run(self) -> bool:
        """Return whether every process ended well."""
        lifeline, held = os.pipe()
        try:
            ended = await asyncio.gather(*(self._keep(place, lifeline) for place in range(self._processes)))
        finally:
            os.close(lifeline)
            os.close(held)
        return all(ended)

    def signalled(self) -> None:
        """Pass a signal on: the first stops gently, the second at once, the third kills."""
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
                # The machine has no room for a process: that passes as a death does.
                why = f"it could not be started, {exc.strerror}"
            if status == 0:
                return True
            if status == REFUSED_STATUS:
                # Another process would be refused as well.
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
            child.send_signal(_SIGNALS[min(self._signals, len(_SIGNALS)) - 1])


def backoff(deaths: int) -> float:
    """Return how long to wait after the nth death in a row, in seconds: 0.1 to 30, jittered."""
    longest = min(LONGEST_PAUSE, 2 * SHORTEST_PAUSE * 2.0 ** min(deaths - 1, 20))
    return random.uniform(longest / 2, longest)  # noqa: S311 - spreads load, guards nothing


def cause(status: int) -> str:
    """Say why a process ended.

    >>> cause(-9), cause(3)
    ('signal SIGKILL', 'exit code 3')
    """
    if status >= 0:
        return f"exit code {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"
