from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tools.postgres import Server

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def own_server(server_version: int) -> Iterator[Server]:
    """A server that may be stopped."""
    with Server(server_version) as server:
        yield server
