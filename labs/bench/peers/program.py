"""Adapters as processes: started, spoken to in lines, ended by their pid."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[3]
LONGEST_SECONDS = 900.0


class Program:
    """An adapter that runs; what it says is read as it comes."""

    def __init__(self, command: Sequence[str], folder: Path, *arguments: str | int) -> None:
        own = command[0] == sys.executable
        path = {"PYTHONPATH": str(ROOT)} if own else {}
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the program
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig=KILL", "--", *command, *map(str, arguments)],
            cwd=None if own else folder,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def pid(self) -> int:
        return self._process.pid

    def report(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def wait_for_line(self, seconds: float = LONGEST_SECONDS) -> dict[str, Any]:
        """Return the next thing it says."""
        try:
            output = self._lines.get(timeout=seconds)
        except queue.Empty:
            raise RuntimeError(f"it said nothing for {seconds:.0f} s: {self._complaint()}") from None
        if output is None:
            raise RuntimeError(f"it ended, with {self._process.wait()}: {self._complaint()}")
        return output

    def received(self) -> list[dict[str, Any]]:
        """Return what it has said meanwhile."""
        lines = []
        while not self._lines.empty():
            lines.append(self.wait_for_line())
        return lines

    def end(self) -> None:
        """Terminate it, and kill it if that is not enough."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(2)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()
        self._reader.join(5)
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self._lines.put(json.loads(line))
        self._lines.put(None)

    def _complaint(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-2000:]


def ask(command: Sequence[str], folder: Path, *arguments: str | int) -> dict[str, Any]:
    """Run an adapter that answers once."""
    with Program(command, folder, *arguments) as program:
        return program.wait_for_line()


class Workers:
    """So many processes of a peer, ready when entered; what they say is summed up."""

    def __init__(self, command: Sequence[str], folder: Path, url: str, processes: int = 1) -> None:
        self.programs = [Program(command, folder, "work", url) for _ in range(processes)]
        self._started = [0] * processes
        self.first = float("inf")
        """When the first handler ran."""
        self.points: list[tuple[float, int]] = []
        """How many had started, and when."""
        self.late: list[tuple[float, float]] = []
        """Milliseconds from enqueue to handler, of jobs whose payload has the time, and when it was reported."""

    def __enter__(self) -> Self:
        try:
            for program in self.programs:
                program.wait_for_line()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for program in self.programs:
            program.end()

    def go(self) -> None:
        for program in self.programs:
            program.report()

    @property
    def started(self) -> int:
        self._listen()
        return sum(self._started)

    def wait(self, jobs: int, seconds: float) -> bool:
        """Return when so many handlers have run; False when that took too long."""
        until = time.monotonic() + seconds
        while self.started < jobs:
            if time.monotonic() > until:
                return False
            time.sleep(0.005)
        return True

    def _listen(self) -> None:
        for number, program in enumerate(self.programs):
            for output in program.received():
                self._started[number] = output["started"]
                self.first = min(self.first, output["first"])
                self.points.append((output["at"], sum(self._started)))
                self.late += [(output["at"], value) for value in output["late"]]
