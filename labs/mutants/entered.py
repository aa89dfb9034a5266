"""A plugin of pytest: which test enters which function of the package, in Python and PostgreSQL, and its seconds.

`pytest -p labs.mutants.entered --entered FOLDER` writes a file of JSON for each process of the run. It does
not see into the processes that a test starts.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast._store.statement import statements
from tools import postgres

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from types import CodeType

MONITORING: Any = vars(sys)["monitoring"]
TOOL = 4
PACKAGE = f"{os.sep}src{os.sep}holdfast{os.sep}"
# Sessions report their calls when they end.
SESSIONS = (
    "SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
    "AND backend_type = 'client backend'"
)
CALLED = "SELECT DISTINCT funcname FROM pg_stat_user_functions WHERE schemaname = 'holdfast'"
PATIENCE = 0.5


class Entered:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now: set[str] = set()
        self.found: dict[str, dict[str, Any]] = {}
        self.names = {sql: name for name, sql in statements().items()}
        MONITORING.use_tool_id(TOOL, "entered")
        MONITORING.register_callback(TOOL, MONITORING.events.PY_START, self._start)
        MONITORING.set_events(TOOL, MONITORING.events.PY_START)

    def _start(self, code: CodeType, _offset: int) -> object:
        if PACKAGE in code.co_filename:
            file = code.co_filename.partition(PACKAGE)[2].replace(os.sep, "/")
            self.now.add(f"{file}::{code.co_qualname.replace('.<locals>', '')}")  # type: ignore[attr-defined,unused-ignore]
            if file.startswith("_drivers/") and code.co_name.startswith("fetch"):
                statement = sys._getframe(1).f_locals.get("statement")
                self.now.add(f"sql::{self.names.get(getattr(statement, 'sql', ''), '')}")
                return None
        return MONITORING.DISABLE

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.now.clear()
        MONITORING.restart_events()
        begun = time.perf_counter()
        result = yield
        self.found[item.nodeid] = {"seconds": round(time.perf_counter() - begun, 2), "entered": sorted(self.now)}
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        url = getattr(item, "funcargs", {}).get("database")
        result = yield
        if isinstance(url, str):
            self.now |= {f"sql::{name}" for name in _called(url)}
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        done = yield
        MONITORING.set_events(TOOL, 0)
        if self.found:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / f"{os.getpid()}.json").write_text(json.dumps(self.found))
        return done


def _called(url: str) -> list[str]:
    """Return the functions that sessions of a test's database have called, without those that were inlined."""
    try:
        with psycopg.connect(url, autocommit=True) as conn:
            until = time.monotonic() + PATIENCE
            while conn.execute(SESSIONS).rowcount and time.monotonic() < until:
                time.sleep(0.02)
            return [name for (name,) in conn.execute(CALLED)]
    except psycopg.Error:  # the test has stopped its server, or dropped its database
        return []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--entered", type=Path, help="the folder for the files of JSON")


def pytest_configure(config: pytest.Config) -> None:
    postgres._DEFAULTS["track_functions"] = "all"
    config.pluginmanager.register(Entered(config.getoption("--entered")))
