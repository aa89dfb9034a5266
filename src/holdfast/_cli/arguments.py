"""The parts that commands share on the command line: actions, numbers, days, confirmations, addresses to listen at."""

from __future__ import annotations

import argparse
import math
import os
import socket
import sys
from datetime import date
from typing import TYPE_CHECKING, NamedTuple, Self, TypeAlias

from holdfast._cli import session, table
from holdfast._cli.session import CommandError

if TYPE_CHECKING:
    from collections.abc import Callable

    Actions: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no public name

LARGEST_ID = 2**63 - 1
LAST_PORT = 65_535
_BACKLOG = 128


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of every command that reads the database: --database-url and --json."""
    session.configure(parser)
    table.configure(parser)


def add_action(
    actions: Actions, name: str, help_: str, act: object = None, *, inherits: bool = False
) -> argparse.ArgumentParser:
    """Add an action with the common options.

    `inherits`: the command takes these options as well, before its action, so the action must not reset them.
    """
    none = argparse.SUPPRESS if inherits else None
    own = actions.add_parser(name, help=help_, description=f"{help_[0].upper()}{help_[1:]}.", argument_default=none)
    own.set_defaults(act=act)
    configure(own)
    return own


def whole(least: int, limit: int, what: str = "") -> Callable[[str], int]:
    """Return a parser of whole numbers within bounds. `what` names the number in the error, e.g. the id of a job."""

    def parse(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= limit:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not {what}: expected a number from {least} to {limit}"
                if what
                else f"expected a number from {least} to {limit}, got {text!r}"
            )
        return int(text)

    return parse


def number(least: float, limit: float, unit: str = "") -> Callable[[str], float]:
    """Return a parser of numbers within bounds. `unit`: in the plural, for the error. Default: none."""

    def parse(text: str) -> float:
        try:
            given = float(text)
        except ValueError:
            given = math.nan
        if not least <= given <= limit:
            wanted = f"{least:g} to {limit:g} {unit}" if unit else f"a number from {least:g} to {limit:g}"
            raise argparse.ArgumentTypeError(f"expected {wanted}, got {text!r}")
        return given

    return parse


def day(text: str) -> date:
    """Parse a day of UTC."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a day: write YYYY-MM-DD, e.g. 2026-03-14") from None


def confirm(arguments: argparse.Namespace, question: str) -> None:
    """Ask for confirmation. Without a terminal, --yes is required."""
    if getattr(arguments, "yes", False):
        return
    if not sys.stdin.isatty():
        raise CommandError(f"this cannot be undone: give --yes ({question})", status=2)
    if input(f"{question} [y/N] ").strip().lower() not in {"y", "yes"}:
        raise CommandError("nothing was done")


class Address(NamedTuple):
    """A host and a port.

    >>> str(Address.parse("127.0.0.1:9464").next(2)), str(Address.parse("[::1]:0").next(2))
    ('127.0.0.1:9466', '[::1]:0')
    """

    host: str
    port: int
    """0 means any free port."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `127.0.0.1:9464`."""
        host, _, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isascii() or not port.isdecimal() or int(port) > LAST_PORT:
            raise argparse.ArgumentTypeError(f"{text!r}: write HOST:PORT, e.g. 127.0.0.1:9464")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def next(self, place: int) -> Self:
        """Return the address `place` ports further; port 0 stays 0."""
        if not self.port:
            return self
        if self.port + place > LAST_PORT:
            raise CommandError(f"{self}: there is no port {self.port + place}")
        return self._replace(port=self.port + place)

    def bind(self) -> socket.socket:
        """Return a listening socket, or raise CommandError with the reason."""
        try:
            family = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0][0]
            listening = socket.create_server((self.host, self.port), family=family, backlog=_BACKLOG)
        except OSError as exc:
            # The text of Python's own error repeats the address.
            why = exc.strerror if isinstance(exc, socket.gaierror) else os.strerror(exc.errno or 0)
            raise CommandError(f"cannot listen on {self}: {why}") from exc
        # asyncio sets this only if a socket names its protocol, which this one does not. Without it a response in two
        # parts waits 40 ms for the client's acknowledgement of the first.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
