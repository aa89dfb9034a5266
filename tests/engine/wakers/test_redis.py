"""Wake-ups over Redis, against a server of the test's own."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from holdfast.wake import RedisWake
from tests.engine.wakers.waking import Waking
from tools.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.broker import Broker


@pytest.mark.nightly
class TestRedis(Waking):
    @pytest.fixture
    def broker(self) -> Iterator[Broker]:
        with RedisServer() as server:
            yield server

    @pytest.fixture
    def carrier(self, broker: Broker) -> RedisWake:
        return RedisWake(broker.url)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(ImportError, match=r"pip install 'holdfast-pg\[redis\]'"):
        RedisWake("redis://127.0.0.1")


def test_another_server_on_the_port_is_noticed() -> None:
    with RedisServer() as server:
        other = RedisServer()
        other.port = server.port
        with pytest.raises(RuntimeError, match=r"did not start|not the server that was started"), other:
            pass


def test_an_address_of_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="Redis URL must specify"):
        RedisWake("http://127.0.0.1")
