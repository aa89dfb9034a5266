"""A worker of the real command picks up every job of the measurement, and so does the loop beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from labs.bench.felt import Taker, bare_taker, worker_taker
from labs.bench.ground import Ground

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tools.postgres import Server

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("taker", [worker_taker, bare_taker])
def test_every_job_is_picked_up_once(
    server: Server, template: str, taker: Callable[[Ground], AbstractContextManager[Taker]]
) -> None:
    with taker(Ground(server, template)) as taking:
        found = taking.pickup(20, 0.005)
    assert len(found.times) == 20
    assert 0 < found.median <= found.p99
    assert found.process > 0
    assert found.backends > 0
