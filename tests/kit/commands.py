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
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Self, TextIO, TypeVar

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Sequence

L = TypeVar("L")

# Longer than anything here takes on a machine that is busy with something else.
PATIENCE = 60.0

_OURS = ("HOLDFAST_", "OUTBOX_", "WORKER_", "ARCHIVE_", "CLEANUP_CRON", "DATABASE_URL", "PDF_RENDER", "NO_COLOR")


class Output(NamedTuple):
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


def holdfast(*arguments: str, database: str | None = None, cwd: Path | None = None, **variables: str) -> Output:
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
        return Output(process.exitcode, out.read_text(), err.read_text())


_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        # A fork runs the script of its parent, which imports this.
        "pytest",
        *(
            f"holdfast._cli.{name}"
            for name in (
                *("archive", "capacity", "check", "events", "import_outbox", "jobs", "kinds", "limits", "migrate"),
                *("queues", "retention", "runners", "status", "tick", "tokens"),
            )
        ),
        # What commands import only when they are used.
        *("holdfast._drivers.psycopg", "holdfast._ops.service", "importlib.readers"),
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


class Command(Generic[L]):
    """A command that goes on, and what it writes, line by line. Killed at the end unless it has ended."""

    def __init__(
        self, *command: str, cwd: Path, env: dict[str, str], stream: Literal["stdout", "stderr"], stdin: int
    ) -> None:
        self._lines: queue.Queue[L | None] = queue.Queue()
        self.log: list[L] = []
        self.process: subprocess.Popen[str] = subprocess.Popen(  # noqa: S603 - the command under test
            command,
            cwd=cwd,
            env=env,
            stdin=stdin,
            stdout=subprocess.PIPE if stream == "stdout" else subprocess.DEVNULL,
            stderr=subprocess.PIPE if stream == "stderr" else subprocess.STDOUT,
            text=True,
            process_group=0,
        )
        self._written: TextIO = getattr(self.process, stream)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def line(self, text: str) -> L:
        """Return a line as it is kept."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(PATIENCE)
        self._written.close()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        """Wait for the end of the process and of all that write for it, and return its status."""
        deadline = time.monotonic() + PATIENCE
        status = self.process.wait(PATIENCE)
        while self._next(deadline) is not None:
            pass
        return status

    def _wait_for_lines(self, text: str, is_it: Callable[[L], bool], times: int = 1) -> list[L]:
        """Wait until so many lines are it since the last call, and return them. Lines between them are skipped."""
        received: list[L] = []
        deadline = time.monotonic() + PATIENCE
        while len(received) < times:
            line = self._next(deadline)
            assert line is not None, f"{text!r} was not heard before the end: {self.log}"
            if is_it(line):
                received.append(line)
        return received

    def _next(self, deadline: float) -> L | None:
        try:
            return self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise AssertionError(f"nothing more was heard: {self.log}") from None

    def _read(self) -> None:
        for text in self._written:
            line = self.line(text)
            self.log.append(line)
            self._lines.put(line)
        self._lines.put(None)


class Running(Command[dict[str, Any]]):
    """A command that goes on, and its log: JSON lines."""

    def __init__(
        self,
        *arguments: str,
        database: str | None,
        cwd: Path,
        program: Sequence[str] = ("-m", "holdfast"),
        **variables: str,
    ) -> None:
        env = environment(database, HOLDFAST_LOG_FORMAT="json", **variables)
        command = (sys.executable, *program, *arguments)
        super().__init__(*command, cwd=cwd, env=env, stream="stderr", stdin=subprocess.DEVNULL)

    def line(self, text: str) -> dict[str, Any]:
        return json.loads(text) if text.startswith("{") else {"message": text}

    def wait_for_line(self, message: str, times: int = 1) -> list[dict[str, Any]]:
        """Wait until so many lines have this message since the last call, and return them."""
        return self._wait_for_lines(message, lambda line: message in str(line["message"]), times)

    def messages(self) -> list[str]:
        return [str(line["message"]) for line in self.log]


class PrintingCommand(Command[str]):
    """A command that goes on, and all that it prints."""

    def __init__(
        self,
        *arguments: str,
        cwd: Path,
        database: str | None = None,
        stdin: int = subprocess.DEVNULL,
        python: str = sys.executable,
        **variables: str,
    ) -> None:
        command = (python, "-m", "holdfast", *arguments)
        super().__init__(*command, cwd=cwd, env=environment(database, **variables), stream="stdout", stdin=stdin)

    def line(self, text: str) -> str:
        return text

    def wait_for_line(self, text: str) -> str:
        """Wait for the next line that has this text, and return it."""
        return self._wait_for_lines(text, lambda line: text in line)[0]

    def text(self) -> str:
        return "".join(self.log)


def children(pid: int) -> list[int]:
    """Return the processes that descend from this one."""
    found = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*found, *(below for child in found for below in children(child))]
