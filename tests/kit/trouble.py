"""Trouble between a worker and its database: closed doors, and a line that can be cut, frozen or refused."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from tools.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from tests.kit.ledger import Ledger
    from tools.postgres import Server


@contextmanager
def closed(server: Server, ledger: Ledger) -> Iterator[None]:
    """Refuse new connections to the ledger's database; open ones stay."""
    name = sql.Identifier(ledger.value("SELECT current_database()"))
    with psycopg.connect(server.url(), autocommit=True) as conn:
        conn.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(name))
        try:
            yield
        finally:
            conn.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(name))


@contextmanager
def read_only(server: Server, url: str) -> Iterator[None]:
    """Let who connects to this database only read; who is connected stays as he is."""
    name = sql.Identifier(urlsplit(url).path[1:])
    with psycopg.connect(server.url(), autocommit=True) as conn:
        conn.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(name))
        try:
            yield
        finally:
            conn.execute(sql.SQL("ALTER DATABASE {} RESET default_transaction_read_only").format(name))


@contextmanager
def refused(line: Line) -> Iterator[None]:
    """Refuse new connections and cut open ones."""
    line.refuse()
    try:
        yield
    finally:
        line.open()


class Line:
    """A TCP line to a server, on a port of its own."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._target = (parts.hostname, parts.port)
        self._url = url
        # Not one that the kernel hands to outgoing connections: the port must be free again after `refuse`.
        self._port = free_port()
        self._door: socket.socket | None = None
        self._calls: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.swallow: bytes | None = None
        """When the client's side says this, the answer to it is lost and the line is cut."""
        self.swallow_answer: bytes | None = None
        """An answer that says this is lost, and the line is cut."""
        self.swallowed = 0

    @property
    def url(self) -> str:
        return self._url.replace(f":{self._target[1]}/", f":{self._port}/")

    async def __aenter__(self) -> Self:
        self.open()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.refuse()
        await asyncio.gather(*self._calls, return_exceptions=True)

    def open(self) -> None:
        self._door = socket.create_server(("127.0.0.1", self._port))
        self._door.setblocking(False)
        asyncio.get_running_loop().add_reader(self._door, self._accept, self._door)

    def close(self) -> None:
        """Refuse new lines; who is connected stays."""
        if self._door is not None:
            asyncio.get_running_loop().remove_reader(self._door)
            self._door.close()
            self._door = None

    def refuse(self) -> None:
        """Cut every line, and refuse new ones."""
        self.close()
        self.cut()

    def cut(self) -> None:
        for call in self._calls:
            call.cancel()

    def freeze(self) -> None:
        """Drop all data without closing connections."""
        self._flowing.clear()

    def thaw(self) -> None:
        self._flowing.set()

    def _accept(self, door: socket.socket) -> None:
        with suppress(OSError):  # who called has gone again
            caller, _ = door.accept()
            caller.setblocking(False)
            call = asyncio.create_task(self._serve(caller))
            self._calls.add(call)
            # Also when the task is cancelled before its first step.
            call.add_done_callback(lambda _: caller.close())
            call.add_done_callback(self._calls.discard)

    async def _serve(self, caller: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with suppress(OSError), closing(socket.socket()) as server:
            server.setblocking(False)
            await self._flowing.wait()
            await loop.sock_connect(server, self._target)
            lost = asyncio.Event()
            pumps = [
                asyncio.create_task(self._pump(caller, server, lost)),
                asyncio.create_task(self._pump(server, caller, lost, back=True)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(
        self, source: socket.socket, target: socket.socket, lost: asyncio.Event, *, back: bool = False
    ) -> None:
        loop = asyncio.get_running_loop()
        while data := await loop.sock_recv(source, 65_536):
            await self._flowing.wait()
            if back and self.swallow_answer is not None and self.swallow_answer in data:
                self.swallow_answer = None
                lost.set()
            if back and lost.is_set():
                self.swallowed += 1
                return
            if not back and self.swallow is not None and self.swallow in data:
                self.swallow = None
                lost.set()
            await loop.sock_sendall(target, data)
