"""Running tests/engine/zombie_app.py in processes of their own."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import signal
    from types import TracebackType


class Process:
    """`async with` starts a worker, and in the end kills it if it still runs."""

    def __init__(self, name: str, url: str) -> None:
        self._env = os.environ | {"ZOMBIE_NAME": name, "ZOMBIE_URL": url, "PYTHONPATH": os.pathsep.join(sys.path)}
        self._early: list[str] = []
        """What it said before it was ready: its first job may be quicker."""

    async def __aenter__(self) -> Self:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.engine.zombie_app", env=self._env, stdin=pipe, stdout=pipe
        )
        await self.prints("ready")
        self._early = self.printed[:-1]
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.communicate()

    async def prints(self, *words: object, seconds: float = 30) -> None:
        """Return when it says something that begins so; whatever it says before is skipped."""
        assert self._process.stdout is not None
        wanted = " ".join(map(str, words))
        self.printed, self._early = self._early, []
        printed = self.printed
        try:
            async with asyncio.timeout(seconds):
                while not any(line.startswith(wanted) for line in printed):
                    line = await self._process.stdout.readline()
                    assert line, f"it ended without saying {wanted!r}: {printed}"
                    printed.append(line.decode().strip())
        except TimeoutError:
            raise AssertionError(f"it did not say {wanted!r}: {printed}") from None

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    def send(self, signal: signal.Signals) -> None:
        self._process.send_signal(signal)

    async def stop(self) -> int:
        """Ask it to stop, and return its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        async with asyncio.timeout(30):
            return await self._process.wait()

    async def ended(self) -> int:
        async with asyncio.timeout(30):
            return await self._process.wait()
