"""The layers, drawn from the code: which package imports which, and in which layer each is.

`python -m tools.layers` prints the picture and what it is made of. The site has it on its page about the architecture.
A package is a folder or a file directly in `holdfast`. Every import counts, also those for type checkers only.
"""

from __future__ import annotations

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


class Package(NamedTuple):
    name: str
    layer: int
    files: int
    lines: int
    below: frozenset[str]
    """The packages that it imports from, without those that it reaches through another."""


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


def packages() -> list[Package]:
    """Return the packages from the top layer down. A circle among them is an error."""
    known = modules()
    below: defaultdict[str, set[str]] = defaultdict(set)
    files: defaultdict[str, list[Path]] = defaultdict(list)
    for name, targets in imports(known).items():
        files[_package(name)].append(known[name])
        below[_package(name)] |= {_package(target) for target in targets} - {_package(name)}
    if found := circles({package: below[package] for package in files}):
        raise SystemExit(f"packages in a circle: {found}")

    @cache
    def layer(package: str) -> int:
        return 1 + max(map(layer, below[package]), default=0)

    @cache
    def reached(package: str) -> frozenset[str]:
        return frozenset(below[package]).union(*map(reached, below[package]))

    built = [
        Package(
            package,
            layer(package),
            len(paths),
            sum(len(path.read_text().splitlines()) for path in paths),
            frozenset(other for other in below[package] if not any(other in reached(via) for via in below[package])),
        )
        for package, paths in files.items()
    ]
    return sorted(built, key=lambda package: (-package.layer, package.name))


def picture() -> str:
    """Return the picture as Mermaid, and the packages as a table."""
    found = packages()
    ids = {package.name: f"r{number}" for number, package in enumerate(found)}
    lines = ["```mermaid", "flowchart TB"]
    for level in sorted({package.layer for package in found}, reverse=True):
        lines.append(f"  subgraph f{level} [layer {level}]")
        lines += [f'    {ids[package.name]}["{package.name}"]' for package in found if package.layer == level]
        lines.append("  end")
    lines += [f"  {ids[package.name]} --> {ids[other]}" for package in found for other in sorted(package.below)]
    lines += ["```", "", "| layer | package | files | lines |", "|---|---|---|---|"]
    lines += [f"| {package.layer} | `{package.name}` | {package.files} | {package.lines:,} |" for package in found]
    return "\n".join(lines) + "\n"


def _package(module: str) -> str:
    if module == "holdfast":
        return "__init__"
    return module.split(".")[1]


def main() -> None:
    print(picture())
    for circle in circles(imports(modules())):
        print("circle:", ", ".join(circle))


if __name__ == "__main__":
    main()
