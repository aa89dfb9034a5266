"""Wake-ups over NATS, against a server of the test's own."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from holdfast.wake import NatsWake
from tests.engine.wakers.waking import Waking
from tools.nats import NatsServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.broker import Broker


class TestNats(Waking):
    @pytest.fixture
    def broker(self) -> Iterator[Broker]:
        with NatsServer() as server:
            yield server

    @pytest.fixture
    def carrier(self, broker: Broker) -> NatsWake:
        return NatsWake(broker.url)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nats", None)
    with pytest.raises(ImportError, match=r"pip install 'holdfast-pg\[nats\]'"):
        NatsWake("nats://127.0.0.1")


def test_another_server_on_the_port_is_noticed() -> None:
    with NatsServer() as server:
        other = NatsServer()
        other.port = server.port
        with pytest.raises(RuntimeError, match=r"did not start|not the server that was started"), other:
            pass
