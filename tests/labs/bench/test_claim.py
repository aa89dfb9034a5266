"""The buffers of a claim, at a tenth of the sizes that `make bench` measures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast._drivers import run_sync
from holdfast._store.claim import REACHES
from labs.bench.claim import BUFFERS, SCENES, costs
from labs.bench.explain import explained
from labs.bench.ground import connected
from labs.bench.lanes import TOMORROW
from labs.bench.load import load_jobs
from labs.bench.worker import Worker
from tests.kit.databases import clone

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    import psycopg

    from tools.postgres import Server

# Enough for a median: these are counts, and they hardly differ.
REPEATS = {1: 8, 50: 6, 500: 4}
EVERYDAY = {"history", "in_flight"}


@pytest.mark.nightly(daily=["history"])
@pytest.mark.parametrize(
    "load",
    [
        pytest.param(load, id=load.__name__, marks=() if load.__name__ in EVERYDAY else pytest.mark.prove)
        for load in SCENES.values()
    ],
)
def test_a_claim_looks_at_little_more_than_on_a_small_table(
    server: Server, template: str, load: Callable[[psycopg.Connection[Any], float], None]
) -> None:
    def database() -> AbstractContextManager[str]:
        return clone(server, template)

    for cost in costs(database, load, 0.1, repeats=REPEATS):
        assert cost.buffers_ratio <= BUFFERS, cost


@pytest.mark.nightly
@pytest.mark.parametrize("scheduled", [0, 10_000], ids="{} for tomorrow".format)
@pytest.mark.parametrize(("kinds", "queues"), [(100, 1), (10_000, 1), (1, 100), (1, 1_000), (100, 10), (1_000, 1_000)])
def test_nothing_due_costs_the_same_however_much_is_served(
    server: Server, template: str, kinds: int, queues: int, scheduled: int
) -> None:
    def cost(kinds: int, queues: int) -> int:
        with clone(server, template) as url, connected(url) as conn:
            worker = Worker(conn, kinds=[f"k{n}" for n in range(kinds)], queues=[f"q{n}" for n in range(queues)])
            load_jobs(conn, scheduled, kinds=list(worker.leases), queues=worker.queues, due=TOMORROW)
            claims = [run_sync(conn, explained(worker.statement(10, reach))) for reach in REACHES[-1:] * 3]
            ahead = [run_sync(conn, explained(worker.look_ahead())) for _ in range(3)]
            return claims[-1].buffers + ahead[-1].buffers

    # The row that says what the worker serves may have become a long one.
    assert cost(kinds, queues) <= 2 * cost(1, 1) + 10
