"""Trouble between a worker and its database: closed doors, and a line that can be cut, frozen or refused."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from tests.engine.ledger import Ledger
    from tools.postgres import Server


@contextmanager
def closed(server: Server, ledger: Ledger) -> Iterator[None]:
    """Let nobody connect to the ledger's database; who is connected stays."""
    name = sql.Identifier(ledger.value("SELECT current_database()"))
    with psycopg.connect(server.url(), autocommit=True) as conn:
        conn.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(name))
        try:
            yield
        finally:
            conn.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(name))


class Line:
    """A TCP line to a server, on a port of its own."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._target = (parts.hostname, parts.port)
        self._url = url
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._port = 0
        self.swallow: bytes | None = None
        """When the client's side says this, the answer to it is lost and the line is cut."""
        self.swallow_answer: bytes | None = None
        """An answer that says this is lost, and the line is cut."""
        self.swallowed = 0

    @property
    def url(self) -> str:
        return self._url.replace(f":{self._target[1]}/", f":{self._port}/")

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.refuse()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Cut every line, and refuse new ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()

    def cut(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    def freeze(self) -> None:
        """Let nothing through, and tell nobody."""
        self._flowing.clear()

    def thaw(self) -> None:
        self._flowing.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            await self._flowing.wait()
            there, here = await asyncio.open_connection(*self._target)
            self._writers.add(here)
            try:
                lost = asyncio.Event()
                await asyncio.gather(self._pump(reader, here, lost), self._pump(there, writer, lost, back=True))
            finally:
                here.transport.abort()
                self._writers.discard(here)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
            self._tasks.discard(task)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lost: asyncio.Event, *, back: bool = False
    ) -> None:
        while data := await reader.read(65_536):
            await self._flowing.wait()
            if back and self.swallow_answer is not None and self.swallow_answer in data:
                self.swallow_answer = None
                lost.set()
            if back and lost.is_set():
                self.swallowed += 1
                raise ConnectionResetError
            if not back and self.swallow is not None and self.swallow in data:
                self.swallow = None
                lost.set()
            writer.write(data)
            await writer.drain()
        writer.transport.abort()
