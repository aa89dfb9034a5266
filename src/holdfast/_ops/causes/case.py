"""The input of a rule: the facts, the problems of the last look, and what the causes found so far explain."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import quote

from holdfast._ops.responses.fleet import Problem
from holdfast._ops.wording import counted, plain, span

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from holdfast._ops.facts import Facts
    from holdfast._ops.responses.fleet import ProblemCode
    from holdfast._store.inspect import KindCount
    from holdfast._store.worker import WorkerLine

Pair: TypeAlias = tuple[str, str]
"""A queue and a kind."""


class Case:
    """The facts, and what the causes found so far explain."""

    def __init__(self, facts: Facts, before: Sequence[Problem]) -> None:
        self.facts = facts
        self.now = facts.census.now
        self._before = {(problem.code, problem.about): problem for problem in before}
        self._explained: set[Pair] = set()
        self.all_explained = False
        """A cause that stops everything: no worker, or a lock."""
        self.relays: set[str] = set()
        """Those whose delay is explained."""
        self.live = [worker for worker in facts.workers if worker.state == "live"]
        self.served = {pair for worker in self.live for pair in pairs(worker)}

    def had(self, code: ProblemCode, about: str | None = None) -> bool:
        """Return whether the last look found this cause."""
        return (code, about) in self._before

    def explain(self, found: Iterable[Pair]) -> None:
        self._explained.update(found)

    def waiting(self) -> list[KindCount]:
        """Return the kinds with due jobs that no cause explains yet."""
        if self.all_explained:
            return []
        return [line for line in self.facts.census.lines if line.due and (line.queue, line.kind) not in self._explained]

    def version(self, workers: Iterable[str]) -> str:
        """Return the version of the application that all these workers run, for a sentence; empty: there is none."""
        names = set(workers)
        versions = {worker.app_version for worker in self.live if worker.name in names}
        if len(versions) != 1 or (version := versions.pop()) is None:
            return ""
        first = min(worker.started_at for worker in self.facts.workers if worker.app_version == version)
        return f"version {plain(version, 60)}, deployed {span(self.age(first))} ago"

    def age(self, at: datetime | None) -> float:
        return 0.0 if at is None else max(0.0, (self.now - at).total_seconds())

    def problem(  # noqa: PLR0913 - one keyword per field
        self,
        code: ProblemCode,
        title: str,
        text: str,
        advice: str,
        *,
        about: str | None = None,
        since: datetime | None = None,
        count: int | None = None,
        critical: bool = False,
        page: str,
        command: str | None = None,
    ) -> Problem:
        """Return a problem that began at `since`, or when it was first found."""
        before = self._before.get((code, about))
        return Problem(
            code=code,
            severity="critical" if critical else "warning",
            title=title,
            text=text,
            advice=advice,
            about=about,
            since=since or (before.since if before else self.now),
            count=count,
            page=page,
            command=command,
        )


def pairs(worker: WorkerLine) -> set[Pair]:
    return {(queue, kind) for queue in worker.queues for kind in worker.kinds}


def page(path: str, **query: str) -> str:
    """Return the address of a page of the dashboard, behind its `#/`."""
    return path + ("?" + "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items()) if query else "")


def wait(number: int, what: str) -> str:
    """Return how many wait: `no event waits`, `1 event waits`, `2 events wait`."""
    return f"{counted(number, what) if number else f'no {what}'} {'wait' if number > 1 else 'waits'}"


def be(number: int, what: str, state: str) -> str:
    """Return how many are something: `no job is due`; `2 jobs of mail are due`, of `job of mail`."""
    one, of, name = what.partition(" of ")
    return f"{counted(number, one) if number else f'no {one}'}{of}{name} {'are' if number > 1 else 'is'} {state}"
