"""The buffers of a claim, at a tenth of the sizes that `make bench` measures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bench.claim import BUFFERS, SCENES, costs
from tests.databases import clone

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    import psycopg

    from tools.postgres import Server

# Enough for a median: these are counts, and they hardly differ.
REPEATS = {1: 8, 50: 6, 500: 4}


@pytest.mark.parametrize("load", SCENES.values(), ids=[load.__name__ for load in SCENES.values()])
def test_a_claim_looks_at_little_more_than_on_a_small_table(
    server: Server, template: str, load: Callable[[psycopg.Connection[Any], float], None]
) -> None:
    def database() -> AbstractContextManager[str]:
        return clone(server, template)

    for cost in costs(database, load, 0.1, repeats=REPEATS):
        assert cost.buffers_ratio <= BUFFERS, cost
