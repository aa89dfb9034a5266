"""The house, drawn from the code: which room of the package imports which, and on which floor each stands.

python -m tools.house           print the picture and what it is made of
python -m tools.house --write   put it into docs/explanation/architecture.md

A room is a folder or a file directly in the package. Every import counts, also those for type checkers only.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "holdfast"
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
BEGIN, END = "<!-- the house: begin -->\n", "<!-- the house: end -->\n"


class Room(NamedTuple):
    name: str
    floor: int
    files: int
    lines: int
    below: frozenset[str]
    """The rooms that it imports from, without those that it reaches through another."""


def modules() -> dict[str, Path]:
    """Return every module of the package by its dotted name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ("holdfast", *path.relative_to(PACKAGE).with_suffix("").parts)
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


def imports(known: Mapping[str, Path]) -> dict[str, set[str]]:
    """Return which modules each module imports from."""
    graph: dict[str, set[str]] = {name: set() for name in known}
    for name, path in known.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    target = whole if whole in known else node.module
                    if target in known and target != name:
                        graph[name].add(target)
            elif isinstance(node, ast.Import):
                graph[name] |= {alias.name for alias in node.names if alias.name in known and alias.name != name}
    return graph


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in graph[name]:
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            group = [stack.pop()]
            while group[-1] != name:
                group.append(stack.pop())
            if len(group) > 1:
                found.append(sorted(group))

    sys.setrecursionlimit(10_000)
    for name in graph:
        if name not in index:
            visit(name)
    return sorted(found)


def rooms() -> list[Room]:
    """Return the rooms from the top floor down. A circle among them is an error."""
    known = modules()
    below: defaultdict[str, set[str]] = defaultdict(set)
    files: defaultdict[str, list[Path]] = defaultdict(list)
    for name, targets in imports(known).items():
        files[_room(name)].append(known[name])
        below[_room(name)] |= {_room(target) for target in targets} - {_room(name)}
    if found := circles({room: below[room] for room in files}):
        raise SystemExit(f"rooms in a circle: {found}")

    @cache
    def floor(room: str) -> int:
        return 1 + max(map(floor, below[room]), default=0)

    @cache
    def reached(room: str) -> frozenset[str]:
        return frozenset(below[room]).union(*map(reached, below[room]))

    built = [
        Room(
            room,
            floor(room),
            len(paths),
            sum(len(path.read_text().splitlines()) for path in paths),
            frozenset(other for other in below[room] if not any(other in reached(via) for via in below[room])),
        )
        for room, paths in files.items()
    ]
    return sorted(built, key=lambda room: (-room.floor, room.name))


def picture() -> str:
    """Return the picture as Mermaid, and the rooms as a table."""
    found = rooms()
    ids = {room.name: f"r{number}" for number, room in enumerate(found)}
    lines = ["```mermaid", "flowchart TB"]
    for level in sorted({room.floor for room in found}, reverse=True):
        lines.append(f"  subgraph f{level} [floor {level}]")
        lines += [f'    {ids[room.name]}["{room.name}"]' for room in found if room.floor == level]
        lines.append("  end")
    lines += [f"  {ids[room.name]} --> {ids[other]}" for room in found for other in sorted(room.below)]
    lines += ["```", "", "| floor | room | files | lines |", "|---|---|---|---|"]
    lines += [f"| {room.floor} | `{room.name}` | {room.files} | {room.lines:,} |" for room in found]
    return "\n".join(lines) + "\n"


def _room(module: str) -> str:
    if module == "holdfast":
        return "__init__"
    return module.split(".")[1]


def write() -> None:
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}{picture()}{END}{after}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.house", description="The house, drawn from the code.")
    parser.add_argument("--write", action="store_true", help="put it into docs/explanation/architecture.md")
    if parser.parse_args().write:
        write()
        return 0
    print(picture())
    for circle in circles(imports(modules())):
        print("circle:", ", ".join(circle))
    return 0


if __name__ == "__main__":
    sys.exit(main())
