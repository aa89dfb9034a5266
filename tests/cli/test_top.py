"""The real command in a terminal of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING, Any, Self

import psycopg
import pytest

from holdfast._cli.top import shown
from tests.kit.commands import PATIENCE, environment, holdfast
from tests.kit.databases import clone
from tests.kit.workers import enqueue, job

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.postgres import Server


class Terminal:
    """A terminal of 80 columns and 24 rows in which a command runs. Killed at the end unless it has ended."""

    def __init__(self, *arguments: str, database: str | None = None, **variables: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = subprocess.Popen(  # noqa: S603 - the command under test
            [sys.executable, "-m", "holdfast", *arguments],
            env=environment(database, **{"TERM": "xterm-256color", **variables}),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.seen = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self.close()

    def close(self) -> None:
        """Close the window."""
        if self._ours >= 0:
            os.close(self._ours)
            self._ours = -1

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def see(self, text: str) -> None:
        """Wait until this has been drawn."""
        deadline = time.monotonic() + PATIENCE
        while text.encode() not in self.seen:
            assert self._read(deadline), f"{text!r} was not drawn: {self.seen[-4000:]!r}"

    def ended(self) -> int:
        deadline = time.monotonic() + PATIENCE
        while self._read(deadline):
            pass
        return self.process.wait(max(0.0, deadline - time.monotonic()))

    def _read(self, deadline: float) -> bool:
        """Return False when no output comes any more, or the time is over."""
        if not select.select([self._ours], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return False
        try:
            piece = os.read(self._ours, 65536)
        except OSError:  # how a terminal says that nobody writes any more
            return False
        self.seen += piece
        return bool(piece)


def test_it_draws_and_quits(database: str, connect: Callable[..., psycopg.Connection[Any]]) -> None:
    enqueue(connect(), job(queue="seen-in-the-terminal"))
    with Terminal("top", "--interval", "0.5", database=database) as terminal:
        terminal.see("seen-in-the-terminal")
        terminal.type(b"?")
        terminal.see("Sorting and filtering")
        terminal.type(b"q")
        terminal.type(b"7")
        terminal.see("created")
        terminal.type(b"q")
        assert terminal.ended() == 0
    assert b"Traceback" not in terminal.seen
    # What it found on the screen is there again: the alternate screen is left, and the cursor shown.
    assert terminal.seen.rindex(b"\x1b[?1049l") > terminal.seen.rindex(b"\x1b[?1049h")
    assert terminal.seen.rindex(b"\x1b[?25h") > terminal.seen.rindex(b"\x1b[?25l")


@pytest.mark.nightly
def test_several_databases_are_listed_and_one_is_opened(server: Server, template: str) -> None:
    with clone(server, template) as eu, clone(server, template) as us:
        with psycopg.connect(us, autocommit=True) as conn:
            enqueue(conn, job(queue="queue-of-us"))
        listed = f"eu={eu} us={us} asia=postgresql://me:hush@127.0.0.1:1/db"
        with Terminal("top", "--interval", "0.5", HOLDFAST_DATABASE_URL=listed) as terminal:
            terminal.see("not answering")
            terminal.see("serving")
            terminal.type(b"\x1b[B\x1b[B\r")
            terminal.see("queue-of-us")
            terminal.type(b"\x7f")
            terminal.see("Enter opens one")
            terminal.type(b"q")
            assert terminal.ended() == 0
        assert b"Traceback" not in terminal.seen
        assert b"hush" not in terminal.seen
        with Terminal("top", "--database", "us", HOLDFAST_DATABASE_URL=listed) as terminal:
            terminal.see("queue-of-us")
            terminal.type(b"q")
            assert terminal.ended() == 0
        assert b"Enter opens one" not in terminal.seen
        with Terminal("top", "--database", "usa", HOLDFAST_DATABASE_URL=listed) as terminal:
            assert terminal.ended() == 2
        assert b"there is no database usa: did you mean us?" in terminal.seen


def test_an_interrupt_ends_it(database: str) -> None:
    with Terminal("top", database=database) as terminal:
        terminal.see("Queues")
        terminal.type(b"\x03")
        assert terminal.ended() == 0


@pytest.mark.nightly
def test_it_ends_with_its_terminal(database: str) -> None:
    with Terminal("top", database=database) as terminal:
        terminal.see("Queues")
        terminal.close()
        terminal.process.wait(PATIENCE)


@pytest.mark.nightly
def test_what_is_no_terminal(database: str) -> None:
    output = holdfast("top", database=database)
    assert (output.status, output.out) == (1, "")
    assert output.err.startswith("holdfast top: this needs a terminal")


@pytest.mark.nightly
def test_a_database_that_is_not_there() -> None:
    with Terminal("top", database="postgresql://me:hush@127.0.0.1:1/db") as terminal:
        assert terminal.ended() == 1
    assert b"holdfast top: cannot connect to the database of DATABASE_URL" in terminal.seen
    assert b"hush" not in terminal.seen
    assert b"\x1b[?1049h" not in terminal.seen


@pytest.mark.parametrize("arguments", [["--interval", "0.1"], ["--interval", "x"]], ids=" ".join)
def test_called_wrongly(arguments: list[str]) -> None:
    output = holdfast("top", *arguments)
    assert output.status == 2
    assert output.err.startswith("holdfast top")
    assert output.err.count("\n") == 1


def test_a_database_is_shown_without_its_password() -> None:
    assert shown({"dbname": "shop", "host": "db.example", "password": "hush", "user": "me"}) == "shop@db.example"
    assert shown({}) == "-@local"
