from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tests.kit.access import login, owner
from tests.kit.fixtures import app, ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["app", "ledger", "login", "owner"]


@pytest.fixture
def stranger(database: str, connect: Callable[..., psycopg.Connection[Any]]) -> Iterator[psycopg.Connection[Any]]:
    """Log in as a user without any rights in the schema."""
    owner = connect()
    name = f"stranger_of_{owner.info.dbname}"
    owner.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
    try:
        with psycopg.connect(make_conninfo(database, user=name), autocommit=True) as conn:
            yield conn
    finally:
        owner.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))
