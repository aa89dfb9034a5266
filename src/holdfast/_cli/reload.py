"""Keeps one process of an application running, and replaces it when a file changes.

The next process starts before the last one stops: if it cannot start, the last one goes on. Both serve the same
socket, so no request is refused meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import TYPE_CHECKING, cast

from holdfast._cli.lines import log
from holdfast._engine.supervisor import cause
from holdfast._ops.wording import span

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Callable, Iterator, Sequence

EVERY = 0.4
"""Seconds between two looks at the files."""
_LEFT_OUT = frozenset({"__pycache__", "node_modules", "site-packages"})
# For the first, second and third signal to the parent.
_SIGNALS = (signal.SIGTERM, signal.SIGQUIT, signal.SIGKILL)


class Watch:
    """The Python files below some folders, by time and size."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._seen = self._look()

    def changed(self) -> list[Path]:
        """Return the files that were written, added or removed since the last call."""
        now = self._look()
        before, self._seen = self._seen, now
        return sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))

    def _look(self) -> dict[Path, tuple[int, int]]:
        found = {}
        for path in (path for folder in self._folders for path in _python_files(folder)):
            with contextlib.suppress(OSError):  # removed meanwhile
                stat = path.stat()
                found[path] = stat.st_mtime_ns, stat.st_size
        return found


def _python_files(folder: Path) -> Iterator[Path]:
    """Yield the Python files below a folder, without hidden folders and virtual environments."""
    for at, folders, files in os.walk(folder):
        if "pyvenv.cfg" in files:
            folders.clear()
            continue
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _LEFT_OUT]
        yield from (Path(at, name) for name in files if name.endswith(".py"))


class Reloader:
    """Runs `command` in one process, which is replaced when `watch` finds a change."""

    def __init__(
        self, command: Callable[[int], Sequence[str]], given: Sequence[str], watch: Watch, *, passed: int
    ) -> None:
        """`command(ready)`: writes to the file descriptor `ready` when it serves. `given`: the first line of its input.

        The input ends when this process ends, however it dies.

        `passed`: the file descriptor of the socket that it serves.
        """
        self._command = command
        self._given = json.dumps(given).encode() + b"\n"
        self._watch = watch
        self._passed = passed
        self._running: dict[Process, asyncio.Task[None]] = {}
        self._stopping = asyncio.Event()
        self._signals = 0

    async def run(self, *, seconds: float) -> None:
        """Run until signalled. `seconds`: how long processes may take to stop; then they are killed."""
        current = await self._start()
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EVERY):
                    await self._stopping.wait()
            if changed := self._watch.changed():
                current = await self._replace(current, changed)
            elif current is not None and current.returncode is not None and not self._stopping.is_set():
                log.error("ended: %s. Waiting for a change of a file.", cause(current.returncode))
                current = None
        await self._end(seconds)

    def signalled(self) -> None:
        """Pass a signal on: the first stops gracefully, the second at once, the third kills."""
        self._signals = min(self._signals + 1, len(_SIGNALS))
        self._stopping.set()
        for process in self._running:
            _send(process, _SIGNALS[self._signals - 1])

    async def _replace(self, current: Process | None, changed: list[Path]) -> Process | None:
        started = time.monotonic()
        names = ", ".join(map(str, changed[:3]))
        log.info("changed: %s%s", names, f" and {len(changed) - 3} more" if changed[3:] else "")
        following = await self._start()
        if following is None:
            if not self._stopping.is_set():
                goes_on = "The last version goes on. " if current is not None else ""
                log.error("not reloaded. %sWaiting for the next change.", goes_on)
            return current
        if current is not None:
            _send(current, signal.SIGTERM)
        log.info("reloaded in %s", span(time.monotonic() - started))
        return following

    async def _start(self) -> Process | None:
        """Start a process and return it when it serves; None if it ended instead."""
        ready, writes = os.pipe()
        process = await asyncio.create_subprocess_exec(
            *self._command(writes), stdin=PIPE, pass_fds=(writes, self._passed), process_group=0
        )
        os.close(writes)
        cast("asyncio.StreamWriter", process.stdin).write(self._given)
        self._running[process] = asyncio.create_task(self._ended(process))
        if self._stopping.is_set():
            _send(process, signal.SIGTERM)
        try:
            # Empty when the process ended before it served.
            return process if await asyncio.to_thread(os.read, ready, 1) else None
        finally:
            os.close(ready)

    async def _ended(self, process: Process) -> None:
        await process.wait()
        del self._running[process]

    async def _end(self, seconds: float) -> None:
        """Wait for all processes. Those that run longer are killed."""
        if self._running:
            await asyncio.wait([*self._running.values()], timeout=seconds)
        for process in self._running:
            _send(process, signal.SIGKILL)
        await asyncio.gather(*self._running.values())


def _send(process: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


def signal_ready(ready: int) -> None:
    """Report to the parent, from the started process, that it serves."""
    os.write(ready, b".")
    os.close(ready)
