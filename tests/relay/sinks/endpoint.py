"""A server of HTTP/1.1 that answers as configured, or does not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Self

from tools.ports import free_port

if TYPE_CHECKING:
    from types import TracebackType

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Request(NamedTuple):
    line: str
    headers: dict[str, str]
    body: bytes


def answer(status: int, text: str = "", **headers: str) -> bytes:
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    body = text.encode()
    return f"HTTP/1.1 {status} Said\r\n{more}content-length: {len(body)}\r\n\r\n".encode() + body


class Endpoint:
    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answers: list[bytes | None] = []
        """Given in turn, then OK; None: no answer at all."""
        self.connections = 0
        self.port = free_port()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks?shop=1"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def stop(self) -> None:
        """As a process that dies: connections are reset."""
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                line, *lines = head.strip().split("\r\n")
                headers = {name.lower(): value for name, _, value in (one.partition(": ") for one in lines)}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                self.requests.append(Request(line, headers, body))
                output = self.answers.pop(0) if self.answers else OK
                if output is not None:
                    writer.write(output)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()
