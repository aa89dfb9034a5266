from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.databases import clone
from tests.leaving.two import Side, Two

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.postgres import Server


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Closes connections at the end of the test."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def two(server: Server, template: str, stack: ExitStack) -> Two:
    """Two databases with identities of their own."""
    here, there = (Side(name, stack.enter_context(clone(server, template)), stack) for name in ("here", "there"))
    there.conn.execute("UPDATE holdfast.identity SET id = gen_random_uuid()")
    return Two(here, there)
