"""A pooler as its clients see it: another process answers in place of the server's."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# The message with which a server names the process that serves the client: its type and length.
_KEY_DATA = b"K\x00\x00\x00\x0c"
_PID = 4
_READ = 65536


@contextmanager
def pooler(port: int) -> Iterator[int]:
    """Pass everything on to the server at this port, but the number of its process; yield a port of our own."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_accept, args=(listening, port), daemon=True).start()
        yield int(listening.getsockname()[1])
        listening.shutdown(socket.SHUT_RDWR)


def _accept(listening: socket.socket, port: int) -> None:
    with suppress(OSError):
        while True:
            client, _ = listening.accept()
            server = socket.create_connection(("127.0.0.1", port))
            threading.Thread(target=_pass_on, args=(client, server), daemon=True).start()
            threading.Thread(target=_pass_on, args=(server, client, True), daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket, disguised: bool = False) -> None:
    with suppress(OSError), source:
        while data := source.recv(_READ):
            place = data.find(_KEY_DATA)
            if disguised and place >= 0:
                start = place + len(_KEY_DATA)
                data = data[:start] + b"\x00\x00\x00\x01" + data[start + _PID :]
                disguised = False
            target.sendall(data)
        target.shutdown(socket.SHUT_RDWR)
