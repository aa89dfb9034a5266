"""Where a command listens: a host and a port, or a Unix socket."""

from __future__ import annotations

import argparse
import os
import socket
from typing import NamedTuple, Self

from holdfast._cli.session import CommandError


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
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            return socket.create_server((self.host, self.port), family=family)
        except OSError as exc:
            # The text of Python's own error repeats the address.
            why = exc.strerror if isinstance(exc, socket.gaierror) else os.strerror(exc.errno or 0)
            raise CommandError(f"cannot listen on {self}: {why}") from exc


LAST_PORT = 65_535
