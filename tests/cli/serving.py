"""`holdfast serve` in a process of its own, and what it says."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Self

import httpx

from tests.kit.commands import PATIENCE, environment, holdfast
from tests.kit.plain_http import NO_AUTHORITIES

if TYPE_CHECKING:
    from pathlib import Path
    from typing import IO


class Serving:
    """Killed at the end unless it has ended."""

    def __init__(self, *arguments: str, database: str, cwd: Path, **variables: str) -> None:
        self._lines: queue.Queue[str] = queue.Queue()
        self.output: list[str] = []
        self.process = subprocess.Popen(  # noqa: S603 - the command under test
            [sys.executable, "-m", "holdfast", "serve", "--port", "0", "--timeout", "20", *arguments],
            cwd=cwd,
            env=environment(database, **variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._passed_over: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in (self.process.stdout, self.process.stderr)
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        self.url = self.wait_for_line("Serving on ").removeprefix("Serving on ")
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for reader in self._readers:
            reader.join(PATIENCE)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    def wait_for_line(self, text: str) -> str:
        """Wait for a line that has this text; skipped lines may be read later, because two streams have no order."""
        for line in self._passed_over:
            if text in line:
                self._passed_over.remove(line)
                return line
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"{text!r} was not heard: {self.output}") from None
            if text in line:
                return line
            self._passed_over.append(line)

    def ended(self) -> int:
        status = self.process.wait(PATIENCE)
        for reader in self._readers:
            reader.join(PATIENCE)
        return status

    def client(self, token: str | None = None) -> httpx.Client:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx.Client(
            base_url=self.url, headers=headers, timeout=PATIENCE, trust_env=False, verify=NO_AUTHORITIES
        )

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self.output.append(line.removesuffix("\n"))
            self._lines.put(self.output[-1])


def token(database: str, role: str) -> str:
    output = holdfast("tokens", "make", f"a {role}", "--role", role, database=database)
    assert output.status == 0, output.err
    return output.out.strip()
