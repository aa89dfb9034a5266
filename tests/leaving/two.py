"""Two databases, a mover between them, and what each of them has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from holdfast._cli.mover import MovePlace, Mover
from holdfast._drivers import run_sync
from holdfast._store.moving import Which, find_moved
from holdfast._store.statement import statements
from tests.traps.workers import Worker

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from holdfast._store.statement import Statement

T = TypeVar("T")


class Side:
    """One of the two databases."""

    def __init__(self, name: str, url: str, stack: ExitStack) -> None:
        self.name = name
        self.url = url
        self._stack = stack
        self.conn = self.connect()

    def connect(self) -> psycopg.Connection[Any]:
        return self._stack.enter_context(psycopg.connect(self.url, autocommit=True))

    def worker(self, *kinds: str) -> Worker:
        return Worker(self.connect(), *kinds)

    def rows(self, query: str, *params: object) -> list[tuple[Any, ...]]:
        return self.conn.execute(query.encode(), params).fetchall()

    def value(self, query: str, *params: object) -> Any:
        return self.rows(query, *params)[0][0]

    def job(self, id_: int) -> dict[str, Any]:
        """Return the columns of a live job."""
        return dict(self.value("SELECT to_json(j) FROM holdfast.job j WHERE id = %s", id_))

    def live(self) -> int:
        return int(self.value("SELECT count(*) FROM holdfast.job"))

    def place(self) -> MovePlace:
        return MovePlace(self.name, self.connect())


@dataclass(frozen=True)
class SlowPlace(MovePlace):
    """Answers one statement only after something else has happened."""

    slow: str
    meanwhile: Callable[[], object]

    def run(self, statement: Statement[T]) -> T:
        answer = super().run(statement)
        if statement.sql == statements()[self.slow]:
            self.meanwhile()
        return answer


@dataclass
class Two:
    here: Side
    there: Side

    def mover(self, which: Which | None = None, **options: Any) -> Mover:
        return Mover(self.here.place(), self.there.place(), which or Which(), **options)

    def mover_back(self, **options: Any) -> Mover:
        """Return a mover in the other direction."""
        return Mover(self.there.place(), self.here.place(), Which(), **options)

    def new_id(self, job: int) -> int:
        """Return the id that a job got there."""
        moved = run_sync(self.here.conn, find_moved(job))
        assert moved is not None
        assert moved.new_id is not None
        return moved.new_id

    def new_ids(self, jobs: list[int]) -> list[int]:
        return [self.new_id(job) for job in jobs]
