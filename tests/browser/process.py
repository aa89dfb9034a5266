"""A command of Holdfast that goes on, in a process of its own; what it prints can be waited for."""

from __future__ import annotations

import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Self

from tests.kit.commands import PATIENCE, environment

ROOT = Path(__file__).parents[2]


class Process:
    """Started at once; asked to stop at the end of its block, then killed."""

    def __init__(self, *arguments: str, database: str, log: Path, **variables: str) -> None:
        self.log = log
        self._lines: queue.Queue[str | None] = queue.Queue()
        # The kernel ties the parent's death to the thread that started the child, so only the main thread may ask.
        main = threading.current_thread() is threading.main_thread()
        wrapper = ["setpriv", "--pdeathsig=KILL", "--"] if main and shutil.which("setpriv") else []
        with log.open("ab") as errors:
            self.process = subprocess.Popen(  # noqa: S603 - the command under test
                [*wrapper, sys.executable, "-m", "holdfast", *arguments],
                cwd=ROOT,
                env=environment(database, HOLDFAST_LOG_FORMAT="human", **variables),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                process_group=0,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.stop()
        self._reader.join(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def wait_for_line(self, beginning: str) -> str:
        """Wait for a line that begins so, and return the rest of it."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"{beginning!r} was not printed: {self.errors}") from None
            assert line is not None, f"it ended without printing {beginning!r}: {self.errors}"
            if line.startswith(beginning):
                return line.removeprefix(beginning).strip()

    @property
    def errors(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)
