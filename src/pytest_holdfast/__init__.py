"""Fixtures for tests of jobs, in a separate module so that pytest imports Holdfast only if they are used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast import Holdfast
    from holdfast._drivers import AsyncConnection, SyncConnection
    from holdfast.testing import Testing

_MISSING = """\
The fixture `holdfast` needs a fixture `{name}` of yours, in conftest.py for example:

    @pytest.fixture
    def {name}({given}):
        return {value}
"""


@pytest.fixture
def holdfast_app() -> Holdfast:
    """Override this: return the application whose jobs are tested."""
    _fail("holdfast_app", "", "app  # your Holdfast")


@pytest.fixture
def holdfast_connection() -> AsyncConnection | SyncConnection:
    """Override this: return the test's connection, in the transaction that is rolled back at its end."""
    _fail("holdfast_connection", "session", "session  # or what connection your test has, in its own transaction")


@pytest.fixture
def holdfast_state() -> Any:
    """Override this to return the handlers' `job.state`. Default: the application's lifespan."""
    from holdfast._model.new_job import OMITTED

    return OMITTED


@pytest.fixture
def holdfast(
    holdfast_app: Holdfast, holdfast_connection: AsyncConnection | SyncConnection, holdfast_state: Any
) -> Iterator[Testing]:
    """Return a `Testing` that inspects, runs and advances jobs on the test's own connection.

    If the test called a verb that it never awaited, it fails at its end.
    """
    from holdfast.testing import Testing

    kit = Testing(holdfast_app, holdfast_connection, state=holdfast_state)
    yield kit
    if kit.unawaited:
        pytest.fail(f"never awaited, so it did nothing: {', '.join(kit.unawaited)}", pytrace=False)


def _fail(name: str, given: str, value: str) -> NoReturn:
    pytest.fail(_MISSING.format(name=name, given=given, value=value), pytrace=False)
