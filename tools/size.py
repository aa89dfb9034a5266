"""Count how large a checkout is, and print the figures as a Markdown table.

python -m tools.size                  this checkout
python -m tools.size --before PATH    beside another checkout
python -m tools.size --names          also name what was counted, file by file

A constructor is an `__init__`; its `self` is not counted. A callable parameter has `Callable` in its annotation.
A shape of a job is a class that itself declares at least six columns of a job: `kind`, `queue`, `status` and so on.
"""

from __future__ import annotations

import argparse
import ast
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parent.parent
MOST_ARGUMENTS = 8
COLUMNS = {"kind", "queue", "status", "payload", "priority", "attempt", "max_attempts", "chain_id"} | {
    *("available_at", "created_at", "order_key", "unique_key")
}
COLUMNS_OF_A_SHAPE = 6


class Class(NamedTuple):
    place: str
    """File and name, such as `_engine/worker.py Worker`."""
    arguments: list[ast.arg]
    """Of its constructor."""
    fields: set[str]

    @property
    def callables(self) -> list[str]:
        return [arg.arg for arg in self.arguments if arg.annotation and "Callable" in ast.unparse(arg.annotation)]

    @property
    def is_shape(self) -> bool:
        return len(self.fields & COLUMNS) >= COLUMNS_OF_A_SHAPE


class Size(NamedTuple):
    python: int
    sql: int
    tests: int
    classes: list[Class]

    @property
    def large(self) -> list[Class]:
        """Return the classes whose constructors take more than eight arguments, the largest first."""
        found = (each for each in self.classes if len(each.arguments) > MOST_ARGUMENTS)
        return sorted(found, key=lambda each: -len(each.arguments))

    def figures(self) -> dict[str, int]:
        with_callables = [each for each in self.classes if each.callables]
        return {
            "lines of `src`, Python": self.python,
            "lines of `src`, SQL": self.sql,
            "lines of `tests`, Python": self.tests,
            "classes": len(self.classes),
            f"constructors with more than {MOST_ARGUMENTS} arguments": len(self.large),
            "arguments of the largest constructor": max((len(each.arguments) for each in self.classes), default=0),
            "callables among the parameters of constructors": sum(len(each.callables) for each in with_callables),
            "classes that are given callables": len(with_callables),
            "shapes of one job": sum(each.is_shape for each in self.classes),
        }


def measure(checkout: Path) -> Size:
    """Count the files below `src` and `tests` of a checkout."""
    source = checkout / "src"
    files = sorted(source.rglob("*.py"))
    return Size(
        _lines(files),
        _lines(source.rglob("*.sql")),
        _lines((checkout / "tests").rglob("*.py")),
        [found for path in files for found in _classes(path, source)],
    )


def table(now: Size, before: Size | None = None) -> str:
    """Return the figures as a Markdown table."""
    if before is None:
        return "\n".join(["|  | now |", "|---|---|", *(f"| {name} | {n:,} |" for name, n in now.figures().items())])
    lines = ["|  | before | now | change |", "|---|---|---|---|"]
    for name, figure in now.figures().items():
        old = before.figures()[name]
        change = f"{100 * (figure - old) / old:+.1f} %" if old else ""
        lines.append(f"| {name} | {old:,} | {figure:,} | {change} |")
    return "\n".join(lines)


def names(size: Size) -> str:
    """Return what was counted, one line each."""
    return "\n".join(
        [
            *(f"{len(each.arguments)} arguments: {each.place}" for each in size.large),
            *(f"callables: {each.place}: {', '.join(each.callables)}" for each in size.classes if each.callables),
            *(f"shape of a job: {each.place}" for each in size.classes if each.is_shape),
        ]
    )


def _lines(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


def _classes(path: Path, source: Path) -> list[Class]:
    place = path.relative_to(source).as_posix().removeprefix("holdfast/")
    return [
        Class(f"{place} {node.name}", arguments := _arguments(node), _fields(node) | {arg.arg for arg in arguments})
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    ]


def _arguments(node: ast.ClassDef) -> list[ast.arg]:
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and member.name == "__init__":
            return [*member.args.posonlyargs, *member.args.args][1:] + member.args.kwonlyargs
    return []


def _fields(node: ast.ClassDef) -> set[str]:
    return {
        member.target.id
        for member in node.body
        if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name)
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.size", description="Count how large a checkout is.")
    parser.add_argument("--before", type=Path, metavar="PATH", help="a checkout to compare with")
    parser.add_argument("--names", action="store_true", help="also name what was counted")
    arguments = parser.parse_args()
    now = measure(ROOT)
    print(table(now, measure(arguments.before) if arguments.before else None))
    if arguments.names:
        print(names(now))
    return 0


if __name__ == "__main__":
    sys.exit(main())
