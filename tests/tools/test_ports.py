"""`tools.ports`: what the tests' own servers listen on."""

from __future__ import annotations

import itertools
import random
import socket
from typing import TYPE_CHECKING

from tools.ports import free_port

if TYPE_CHECKING:
    import pytest


def test_a_row_with_a_taken_port_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    free = free_port(3)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        tried = itertools.chain([taken.getsockname()[1] - 1], itertools.repeat(free))
        monkeypatch.setattr(random.SystemRandom, "randrange", lambda *_: next(tried))
        assert free_port(3) == free
