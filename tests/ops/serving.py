"""An ASGI application served by uvicorn, in a thread of this process."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import uvicorn

if TYPE_CHECKING:
    from starlette.types import ASGIApp

PATIENCE = 30.0


class Served:
    """Serves on a free port of this machine while its block runs."""

    def __init__(self, app: ASGIApp, **options: Any) -> None:
        config = uvicorn.Config(app, log_level="warning", ws="none", timeout_graceful_shutdown=5, **options)
        self.server = uvicorn.Server(config)
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.loop: asyncio.AbstractEventLoop
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(),), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        deadline = time.monotonic() + PATIENCE
        while not self.server.started:
            assert time.monotonic() < deadline
            assert self._thread.is_alive()
            time.sleep(0.005)
        return self

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        await self.server.serve([self._socket])

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self._thread.join(PATIENCE)
        self._socket.close()
        assert not self._thread.is_alive(), "the server did not stop"
