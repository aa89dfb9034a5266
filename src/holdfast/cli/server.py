"""A uvicorn server for the operations application. Imported only where the extra `ops` is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import uvicorn

from holdfast.cli.connection import Connection
from holdfast.ops import end_streams

if TYPE_CHECKING:
    import socket

    from starlette.applications import Starlette

# What is being answered when it is told to stop may take this long.
_GRACE_SECONDS = 10
_KEEP_ALIVE_SECONDS = 30
# Connections. Below the 1,024 open files that a process may usually have.
_MOST_AT_ONCE = 800


class Server(uvicorn.Server):
    """Ends live streams before it waits for what is being answered: they would not end by themselves."""

    def __init__(self, site: Starlette, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._site = site

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        end_streams(self._site)
        await super().shutdown(sockets)


def make_server(site: Starlette, *, behind_proxy: bool) -> Server:
    """Return a server that names no version, keeps no log of addresses, and believes no header but a known proxy's."""
    config = uvicorn.Config(
        site,
        http=Connection,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=behind_proxy,
        lifespan="on",
        ws="none",
        limit_concurrency=_MOST_AT_ONCE,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    return Server(site, config)
