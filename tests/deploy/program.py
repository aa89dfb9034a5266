"""A program that goes on, as a service manager or a container engine starts it, and the lines that it prints."""

from __future__ import annotations

import signal
import subprocess
import time
from typing import TYPE_CHECKING

from tests.kit.commands import Command

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class Program(Command[str]):
    def __init__(self, command: Sequence[str], *, cwd: Path, env: dict[str, str]) -> None:
        super().__init__(*command, cwd=cwd, env=env, stream="stdout", stdin=subprocess.DEVNULL)

    def line(self, text: str) -> str:
        return text

    def wait_for_line(self, text: str) -> str:
        """Wait for the next line that has this text, and return it."""
        return self._wait_for_lines(text, lambda line: text in line)[0]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, float]:
        """Send a signal, and return the exit status and the seconds that the stop took."""
        began = time.monotonic()
        self.signal(number)
        return self.ended(), time.monotonic() - began


def run(command: Sequence[str], *, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(  # noqa: S603 - the commands of our own files
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=120, check=False
    )
