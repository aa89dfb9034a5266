"""The real command, in a process of its own.

A command that ends by itself is forked from a server that has imported what commands import: importing takes ten times
as long as most commands.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import queue
import runpy
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:
    import signal
    from collections.abc import Sequence

# Longer than anything here takes on a machine that is busy with something else.
PATIENCE = 60.0

_OURS = ("HOLDFAST_", "OUTBOX_", "WORKER_", "ARCHIVE_", "DATABASE_URL", "PDF_RENDER", "NO_COLOR")


class Said(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def environment(database: str | None, **variables: str) -> dict[str, str]:
    """Everything of this process but what Holdfast reads; and `variables`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    named = {} if database is None else {"DATABASE_URL": database}
    return kept | named | {"PYTHONUNBUFFERED": "1"} | variables


def holdfast(*arguments: str, database: str | None = None, cwd: Path | None = None, **variables: str) -> Said:
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        process = _FORKS.Process(
            target=_be_the_command, args=(arguments, cwd or Path.cwd(), environment(database, **variables), out, err)
        )
        process.start()
        process.join(PATIENCE)
        if process.exitcode is None:
            process.kill()
            process.join()
        assert process.exitcode is not None
        assert process.exitcode >= 0, f"{arguments}: ended by signal {-process.exitcode}: {err.read_text()}"
        return Said(process.exitcode, out.read_text(), err.read_text())


_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        f"holdfast._cli.{name}"
        for name in (
            "archive",
            "check",
            "events",
            "import_outbox",
            "jobs",
            "migrate",
            "queues",
            "retention",
            "runners",
            "tick",
            "tokens",
        )
    ]
)


def _be_the_command(arguments: Sequence[str], cwd: Path, variables: dict[str, str], out: Path, err: Path) -> None:
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(variables)
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    sys.path.insert(0, str(cwd))
    sys.argv = ["holdfast", *arguments]
    runpy.run_module("holdfast", run_name="__main__", alter_sys=True)


class Running:
    """A command that goes on, and its log: JSON lines, read as they come. Killed at the end unless it has ended."""

    def __init__(
        self, *arguments: str, database: str, cwd: Path, program: Sequence[str] = ("-m", "holdfast"), **variables: str
    ) -> None:
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.log: list[dict[str, Any]] = []
        self.process = subprocess.Popen(  # noqa: S603 - the command under test
            [sys.executable, *program, *arguments],
            cwd=cwd,
            env=environment(database, HOLDFAST_LOG_FORMAT="json", **variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(PATIENCE)
        assert self.process.stderr is not None
        self.process.stderr.close()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def hear(self, message: str, times: int = 1) -> list[dict[str, Any]]:
        """Wait until so many lines have this message since the last call, and return them."""
        heard: list[dict[str, Any]] = []
        deadline = time.monotonic() + PATIENCE
        while len(heard) < times:
            line = self._next(deadline)
            assert line is not None, f"{message!r} was not heard before the end: {self.log}"
            if message in str(line["message"]):
                heard.append(line)
        return heard

    def ended(self) -> int:
        """Wait for the end of the process and of all that write to its log, and return its status."""
        deadline = time.monotonic() + PATIENCE
        status = self.process.wait(PATIENCE)
        while self._next(deadline) is not None:
            pass
        return status

    def messages(self) -> list[str]:
        return [str(line["message"]) for line in self.log]

    def _next(self, deadline: float) -> dict[str, Any] | None:
        try:
            return self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise AssertionError(f"nothing more was heard: {self.log}") from None

    def _read(self) -> None:
        assert self.process.stderr is not None
        for text in self.process.stderr:
            line = json.loads(text) if text.startswith("{") else {"message": text}
            self.log.append(line)
            self._lines.put(line)
        self._lines.put(None)


class Saying:
    """A command that goes on, and all that it writes, line by line. Killed at the end unless it has ended."""

    def __init__(
        self,
        *arguments: str,
        cwd: Path,
        database: str | None = None,
        stdin: int = subprocess.DEVNULL,
        python: str = sys.executable,
        **variables: str,
    ) -> None:
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._said: list[str] = []
        self.process = subprocess.Popen(  # noqa: S603 - the command under test
            [python, "-m", "holdfast", *arguments],
            cwd=cwd,
            env=environment(database, **variables),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def hear(self, text: str) -> str:
        """Wait for the next line that has this text, and return it. Lines before it are skipped."""
        deadline = time.monotonic() + PATIENCE
        while True:
            line = self._next(deadline)
            assert line is not None, f"{text!r} was not heard before the end: {self.text()}"
            if text in line:
                return line

    def ended(self) -> int:
        """Wait for the end of the process and of all that write for it, and return its status."""
        deadline = time.monotonic() + PATIENCE
        status = self.process.wait(PATIENCE)
        while self._next(deadline) is not None:
            pass
        return status

    def text(self) -> str:
        return "".join(self._said)

    def _next(self, deadline: float) -> str | None:
        try:
            return self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise AssertionError(f"nothing more was heard: {self.text()}") from None

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._said.append(line)
            self._lines.put(line)
        self._lines.put(None)


def children(pid: int) -> list[int]:
    """Return the processes that descend from this one."""
    found = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*found, *(below for child in found for below in children(child))]
