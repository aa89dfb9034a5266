"""A shell in the clean environment: runs the commands of a page as a reader would type them."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_END = re.compile(rb"\x01(\d+)\x02\n")
_ELLIPSIS = "…"
PATIENCE = 60
# Tests that were started in the background ignore Ctrl-C, and so would everything that they start.
_SHELL = (
    "import os, signal; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "os.execv('/bin/bash', ['bash', '--noprofile', '--norc'])"
)


class Command(NamedTuple):
    line: str
    shown: str
    """The output that the page shows; nothing: it is not compared."""


def commands(text: str) -> Iterator[Command]:
    """Read a block of prompts and output: a line with `$ ` is a command, the lines below it are its output."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        last = next(number for number, line in enumerate(lines) if not line.endswith("\\"))
        yield Command("\n".join(lines[: last + 1]), "\n".join(lines[last + 1 :]).strip())


def matches(shown: str, printed: str) -> bool:
    """Return whether the output is what the page shows. `…` stands for any text, and alone in a line for any lines."""
    lines = [r"(?:.*\n)*?" if line.strip() == _ELLIPSIS else f"{_pattern(line)}\n" for line in shown.splitlines()]
    whole = "".join(f"{line.rstrip()}\n" for line in printed.strip().splitlines())
    return re.fullmatch("".join(lines), whole) is not None


def _pattern(line: str) -> str:
    return ".*".join(re.escape(part) for part in line.rstrip().split(_ELLIPSIS))


class Terminal:
    """A shell of its own. A command that goes on, such as a server, keeps it until `interrupt`."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._shell = subprocess.Popen(  # noqa: S603 - our own pages
            [sys.executable, "-c", _SHELL],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._read = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in (*self._children(), self._shell.pid):
            try:
                os.killpg(os.getpgid(pid), signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._shell.wait()
        for pipe in (self._shell.stdin, self._shell.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()

    def run(self, line: str) -> tuple[int, str]:
        """Run a command to its end; return its status and its output."""
        self.start(line)
        return self.finish()

    def start(self, line: str) -> None:
        assert self._shell.stdin is not None
        self._read = b""
        # A command must not read the commands after it.
        self._shell.stdin.write(f"{{ {line}\n}} </dev/null\nprintf '\\001%d\\002\\n' $?\n".encode())
        self._shell.stdin.flush()

    def finish(self) -> tuple[int, str]:
        """Wait for the end of the command that was started."""
        self._until(lambda: _END.search(self._read))
        found = _END.search(self._read)
        assert found is not None
        return int(found[1]), self._read[: found.start()].decode()

    def wait_for(self, shown: str) -> None:
        """Wait until a command that goes on has printed the lines that the page shows, in their order."""
        pattern = "(?:.*\n)*?".join(f".*{_pattern(line)}.*\n" for line in shown.splitlines())
        self._until(lambda: re.search(pattern, self._read.decode(errors="replace")) or _END.search(self._read))
        printed = self._read.decode(errors="replace")
        assert re.search(pattern, printed), f"the command ended, and did not print:\n{shown}\nbut:\n{printed}"

    @property
    def printed(self) -> str:
        """The output of the command, as far as it was read."""
        return self._read.decode(errors="replace")

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        children = self._children()
        assert children, "there is no program to interrupt"
        for pid in children:
            os.kill(pid, signal.SIGINT)

    def _children(self) -> list[int]:
        try:
            return [
                int(pid) for pid in Path(f"/proc/{self._shell.pid}/task/{self._shell.pid}/children").read_text().split()
            ]
        except FileNotFoundError:
            return []

    def _until(self, done: Callable[[], object]) -> None:
        assert self._shell.stdout is not None
        deadline = time.monotonic() + PATIENCE
        with selectors.DefaultSelector() as selector:
            selector.register(self._shell.stdout, selectors.EVENT_READ)
            while not done():
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError(f"after {PATIENCE} seconds the terminal shows:\n{self._read.decode()}")
                part = os.read(self._shell.stdout.fileno(), 65536)
                if not part:
                    raise AssertionError(f"the shell ended:\n{self._read.decode()}")
                self._read += part
