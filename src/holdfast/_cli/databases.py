"""Questions to all databases of a command at once: one that does not answer is reported, and delays no other."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from holdfast._cli import session, table
from holdfast._cli.session import CommandError, ConnectError, Database
from holdfast._model.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from holdfast._ops.service import Service

T = TypeVar("T")

NOT_ASKED = 3
"""The exit status of a command that could not ask one of several databases."""
# The longest time for one of several databases to answer after it accepted the connection, in seconds.
SECONDS = 15.0


class DatabaseAnswer(NamedTuple, Generic[T]):
    name: str
    """The name of the database; empty if the command is for one alone."""
    value: T

    def id(self, number: int) -> str:
        """Return the id of a job as `eu/7`, or as `7` if the command is for one database alone."""
        return f"{self.name}/{number}" if self.name else str(number)


class DatabaseAnswers(NamedTuple, Generic[T]):
    """The answers of all databases, in the order of the list, and why others were not asked, by name."""

    found: list[DatabaseAnswer[T]]
    failed: dict[str, str]

    @property
    def several(self) -> bool:
        """Whether several databases were asked."""
        return bool(self.failed) or any(answer.name for answer in self.found)

    def print_table(self, columns: Sequence[str], rows: Iterable[tuple[str, Sequence[object]]]) -> None:
        """Print rows that begin with the name of their database; the name is left out if there is only one."""
        if self.several:
            table.print_table(("database", *columns), [(name, *row) for name, row in rows])
        else:
            table.print_table(columns, [row for _, row in rows])

    def json(self, name: str, value: dict[str, Any]) -> dict[str, Any]:
        """Return the object with the name of its database first, if there are several."""
        return {"database": name, **value} if self.several else value

    def status(self, otherwise: int = 0) -> int:
        """Print a line for each database that was not asked, and return the exit status."""
        sys.stdout.flush()
        for name, why in self.failed.items():
            print(f"{name}: not asked: {why}", file=sys.stderr)
        return otherwise or (NOT_ASKED if self.failed else 0)


async def ask_all(
    databases: Sequence[Database],
    ask: Callable[[Service, Database], Awaitable[T]],
    *,
    several: bool | None = None,
) -> DatabaseAnswers[T]:
    """Ask all databases concurrently. If there is only one, its errors are raised.

    `several`: whether there are more databases than these. Default: whether these are several.
    """
    if len(databases) == 1 and not several:
        async with session.service(databases[0]) as service:
            return DatabaseAnswers([DatabaseAnswer("", await ask(service, databases[0]))], {})
    asked = await asyncio.gather(*(_asked(database, ask) for database in databases))
    answers: DatabaseAnswers[T] = DatabaseAnswers([], {})
    for database, answer in zip(databases, asked, strict=True):
        if isinstance(answer, DatabaseAnswer):
            answers.found.append(answer)
        else:
            answers.failed[database.name] = answer
    return answers


async def _asked(database: Database, ask: Callable[[Service, Database], Awaitable[T]]) -> DatabaseAnswer[T] | str:
    began = time.monotonic()
    try:
        async with session.service(database, seconds=SECONDS) as service:
            return DatabaseAnswer(database.name, await ask(service, database))
    except ConnectError as stop:
        return stop.why
    except (CommandError, HoldfastError) as stop:
        late = time.monotonic() - began >= SECONDS
        return f"it did not answer within {SECONDS:g} s" if late else str(stop)
