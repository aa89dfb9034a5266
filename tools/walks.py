"""Follow the calls of a job, an event, a request and a setting, and list the files of the package that each enters.

python -m tools.walks           print the walks
python -m tools.walks --write   put them into docs/explanation/architecture.md

Each is followed five times on a real database, after a first time that does not count. A file that is not entered
each time, or that is entered during each rest too, belongs to a loop that happened to run. Files that log, report or
declare errors are not counted. A file of SQL is entered when a driver runs its statement or calls a function that it
creates. A return is a package that is entered again after another one.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from unittest.mock import patch

import psycopg

from holdfast import Holdfast
from holdfast._drivers import run_sync
from holdfast._engine.report.transition import Observer
from holdfast._model.settings import Settings
from holdfast._ops.caller import Token
from holdfast._store.access import make_access_token
from holdfast._store.schema import migrate
from holdfast._store.statement import blocks, statements
from holdfast.ops import operations
from holdfast.sinks import NatsSink
from tests.kit.asking import Asked, ask, bearer
from tests.kit.nats import stream
from tools.nats import NatsServer
from tools.postgres import Server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import CodeType

    from holdfast._engine.report.transition import Transition

PACKAGE = Path(__file__).parents[1] / "src" / "holdfast"
PAGE = PACKAGE.parents[1] / "docs" / "explanation" / "architecture.md"
BEGIN, END = "<!-- the walks: begin -->\n", "<!-- the walks: end -->\n"
SQL = PACKAGE / "_store" / "sql"
# Any file may use these, or they follow the written row.
UNCOUNTED = ("_logs/", "_model/errors.py", "_engine/report/")
TIMES = 5
REST = 0.3
SOON = 60.0
# Python 3.12 has it, and 3.11, for which the types are checked, does not.
MONITORING: Any = vars(sys).get("monitoring")
TOOL = 3
SETTING = "batch_size"
HELD = "SELECT FROM holdfast.position WHERE locked_by IS NOT NULL"


class Walk(NamedTuple):
    of: str
    files: list[str]
    """In the order in which they are first entered, such as `_engine/worker.py` and `sql/schema/09_claim.sql`."""

    @property
    def returns(self) -> int:
        packages = [_package(file) for file in self.files]
        visits = [name for name, before in zip(packages, ["", *packages], strict=False) if name != before]
        return len(visits) - len(set(visits))


class Steps:
    """Records the files of the package whose functions start within the block, in all threads."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}

    def __enter__(self) -> Self:
        MONITORING.use_tool_id(TOOL, "walks")
        MONITORING.register_callback(TOOL, MONITORING.events.PY_START, self._entered)
        MONITORING.set_events(TOOL, MONITORING.events.PY_START)
        MONITORING.restart_events()
        return self

    def __exit__(self, *_: object) -> None:
        MONITORING.set_events(TOOL, 0)
        MONITORING.free_tool_id(TOOL)

    def add(self, code: CodeType) -> None:
        path = Path(code.co_filename)
        if path.is_relative_to(PACKAGE) and code.co_name != "<module>":
            file = path.relative_to(PACKAGE).as_posix()
            if not file.startswith(UNCOUNTED):
                self.files[file] = None

    def _entered(self, code: CodeType, _offset: int) -> object:
        self.add(code)
        if not (code.co_name.startswith("fetch") and "_drivers" in code.co_filename):
            return MONITORING.DISABLE
        statement = sys._getframe(1).f_locals["statement"]
        self.files.update(dict.fromkeys(sql_files(statement.sql)))
        return None


@cache
def sql_files(sql: str) -> list[str]:
    """Return the files that create the functions which a statement calls, or else the file that holds the statement."""
    if called := re.findall(r"\bholdfast\.(\w+)\s*\(", sql):
        created = {name: file for file in sorted(SQL.glob("schema/*.sql")) for name in _functions(file)}
        return [f"sql/schema/{created[name].name}" for name in called if name in created]
    names = {name for name, text in statements().items() if text == sql}
    return [f"sql/{file.name}" for file in sorted(SQL.glob("*.sql")) if names & {name for _, name, _ in _blocks(file)}]


def _functions(file: Path) -> list[str]:
    return re.findall(r"^CREATE FUNCTION holdfast\.(\w+)", file.read_text(), re.MULTILINE)


def _blocks(file: Path) -> list[tuple[str, str, str]]:
    return blocks(file.read_text())


async def follow(of: str, step: Callable[[], Awaitable[object]], *, rest: float = 0.0) -> Walk:
    """Return what each step enters, and a rest of so many seconds before it does not."""
    await step()
    found, rests = [], []
    for _ in range(TIMES):
        await asyncio.sleep(rest)
        with Steps() as steps:
            await asyncio.sleep(rest)
        rests.append(steps.files)
        with Steps() as steps:
            await step()
        found.append(steps.files)
    always = set.intersection(*map(set, rests))
    return Walk(of, [file for file in found[0] if all(file in files for files in found) and file not in always])


async def follow_job(url: str) -> Walk:
    app, ended = Holdfast(url), asyncio.Event()

    @app.job("walk.greet")
    async def greet(name: str) -> str:
        return f"hello {name}"

    def listen(transition: Transition) -> None:
        if transition.name == "job_completed":
            ended.set()

    app.listeners.append(listen)
    async with app.worker(), await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:

        async def step() -> None:
            ended.clear()
            async with conn.transaction():
                await app.enqueue(conn, greet.new("ann"))
            await ended.wait()

        return await follow("a job, from `enqueue` to `job_history`", step, rest=REST)


async def follow_event(url: str, server: NatsServer) -> Walk:
    app, done = Holdfast(url), asyncio.Event()
    sold = app.event("walk.sold", int)
    app.relay("out", sold, to=NatsSink(server.url))

    class Confirmed(Observer):
        def relayed(self, *_: object, **_counts: object) -> None:
            done.set()

    app.listeners.append(Confirmed())
    async with (
        stream(server, "walk", "walk.>"),
        app.worker(),
        await psycopg.AsyncConnection.connect(url, autocommit=True) as conn,
    ):
        while not (await conn.execute(HELD)).rowcount:  # noqa: ASYNC110 - a database is asked
            await asyncio.sleep(0.05)

        async def step() -> None:
            done.clear()
            async with conn.transaction():
                await app.publish(conn, sold.new(1))
            await done.wait()

        return await follow("an event, from `publish` to a confirmation of NATS", step, rest=REST)


async def follow_request(url: str) -> Walk:
    token = Token.new()
    with psycopg.connect(url, autocommit=True) as conn:
        run_sync(conn, make_access_token(token.key, name="ann", role="viewer", digest=token.digest, days=1.0))
        conn.execute("SELECT holdfast.enqueue('listed')")
    site = operations(Holdfast(url))

    async def step() -> None:
        answer = await ask(site, Asked("GET", "/api/v1/jobs", headers=bearer(token.text)))
        assert answer.status == 200, answer

    try:
        return await follow("a request for a list of jobs", step)
    finally:
        await site.state.operations.close()


async def follow_setting(url: str) -> Walk:
    """Follow a setting from the environment to the last file that reads it when a worker starts."""
    readers: dict[str, None] = {}

    def read(settings: Settings, name: str) -> object:
        caller = Path(sys._getframe(1).f_code.co_filename)
        if name == SETTING:
            readers[caller.relative_to(PACKAGE).as_posix()] = None
        return object.__getattribute__(settings, name)

    async def step() -> None:
        Settings.load({"HOLDFAST_BATCH_SIZE": "7"})

    walk = await follow("a setting, from the environment to what uses it", step)
    with patch.object(Settings, "__getattribute__", read):
        async with Holdfast(url).worker():
            pass
    return walk._replace(files=list(dict.fromkeys([*walk.files, *readers])))


async def walks(url: str, server: NatsServer) -> list[Walk]:
    """Follow all of them. `url`: of a migrated database."""
    async with asyncio.timeout(SOON):
        return [
            await follow_job(url),
            await follow_event(url, server),
            await follow_request(url),
            await follow_setting(url),
        ]


def table(found: list[Walk]) -> str:
    """Return the walks as a page shows them."""
    lines = ["| walk | files | returns |", "|---|---|---|"]
    lines += [f"| {walk.of} | {len(walk.files)} | {walk.returns} |" for walk in found]
    return "\n".join(lines) + "\n"


def _package(file: str) -> str:
    return "_store" if file.startswith("sql/") else file.partition("/")[0]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.walks", description="Follow the calls of four things.")
    parser.add_argument("--write", action="store_true", help="put them into docs/explanation/architecture.md")
    arguments = parser.parse_args()
    with Server(18) as server, NatsServer(jetstream=True) as nats:
        with psycopg.connect(server.url(), autocommit=True) as conn:
            migrate(conn)
        found = asyncio.run(walks(server.url(), nats))
    text = table(found)
    print(text)
    for walk in found:
        print(f"{walk.of}: {', '.join(walk.files)}\n")
    if arguments.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}{text}{END}{rest.partition(END)[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
