"""Tell whether all is well, and if not, the causes: what is wrong, since when, and what helps.

Exit status: 0 all is well, 4 a warning or not known, 5 a critical problem; 1 and 2 as of every command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast._cli import arguments as args
from holdfast._cli import session, table
from holdfast._cli.databases import ask_all
from holdfast._ops.caller import RequestRefused

if TYPE_CHECKING:
    import argparse

    from holdfast._cli.session import Database
    from holdfast._ops.responses.fleet import Problem
    from holdfast._ops.service import Service

WARNING, CRITICAL = 4, 5
_MINUTES = 5


class Status(NamedTuple):
    ok: bool
    verdict: str
    problems: list[Problem]
    locked: bool = False
    """Whether a session keeps the tables from being read. Then nothing else is known."""

    @property
    def code(self) -> int:
        if self.locked or any(problem.severity == "critical" for problem in self.problems):
            return CRITICAL
        return 0 if self.ok else WARNING


def configure(parser: argparse.ArgumentParser) -> None:
    args.configure(parser)


def run(arguments: argparse.Namespace) -> int:
    return session.run_async(_run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    answers = await ask_all(session.listed(arguments), _ask)
    if arguments.json:
        found = [answers.json(name, _object(status)) for name, status in answers.found]
        table.print_json(found if answers.several else found[0])
    else:
        for name, status in answers.found:
            print(f"{name}: {status.verdict}" if name else status.verdict)
            for problem in status.problems:
                _print(problem)
    return answers.status(max(status.code for _, status in answers.found) if answers.found else 0)


async def _ask(service: Service, _: Database) -> Status:
    try:
        overview = await service.overview(_MINUTES)
    except RequestRefused as refused:
        if refused.code != "locked":
            raise
        return Status(ok=False, verdict=refused.message, problems=[], locked=True)
    return Status(overview.ok, overview.verdict, overview.problems)


def _print(problem: Problem) -> None:
    print(f"{problem.severity}: {table.text(problem.text)}")
    command = f" {problem.command}" if problem.command else ""
    print(f"  since {table.text(problem.since)}. {table.text(problem.advice)}{command}")


def _object(status: Status) -> dict[str, object]:
    problems = [problem.model_dump(mode="json") for problem in status.problems]
    return {"ok": status.ok, "verdict": status.verdict, "problems": problems}
