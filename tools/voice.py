"""The voice: sentences and names that a reader would have to decode, in documents, code and SQL.

python -m tools.voice            print each place, and how many there are
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
# A sentence that begins so has no subject that a reader could name. Questions may.
_BARE = re.compile(r"(?:^|(?<=[.!:;]\s)|(?<=\|\s))(?:Who|Whoever|What)\b(?![^.!?|]*\?)")
# A thing does not hear, and nobody is told; and names of an older house.
_WORDS = re.compile(
    r"\b(?:deaf|told|hears?|heard|hearing|is said|are said|somebody|nobody|whoever|bears? to|"
    r"Desk|Vigil|Courier|Bell|Station|Holding|Journal|Pulse|deeds?)\b"
)
_ANY = re.compile(rf"\b(?:Who|Whoever|What)\b|{_WORDS.pattern}")
# Words that in the name of a variable, a function or a class mean less than a technical word would.
_NAMES = {"said", "says", "hear", "heard", "hears", "deaf", "told", "tells", "nobody", "everybody", "soundly", "astray"}
_NAMES |= {"bell", "courier", "parcel", "rung", "vigil", "obey"}
_ANY_NAME = re.compile("|".join(sorted(_NAMES)), re.IGNORECASE)
# Code, and where links lead.
_CODE = re.compile(r"```.*?```|`[^`\n]*`|\]\([^)\n]*\)", re.DOTALL)


_SQL_TEXT = re.compile(r"'((?:[^']|'')*)'")


class Place(NamedTuple):
    path: str
    line: int
    found: str


def pages() -> list[Path]:
    """Return the documents that people read."""
    found = [*(ROOT / "docs").rglob("*.md")]
    roots = [ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")]
    return sorted([*found, *roots, *(ROOT / "examples").glob("*/README.md")])


def sources() -> list[Path]:
    """Return the code of the package, and what is beside it. This file quotes what it looks for."""
    folders = ("src", "labs", "examples", "tools")
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py") if path != Path(__file__))


def scripts() -> list[Path]:
    return sorted((ROOT / "src").rglob("*.sql"))


def tests() -> list[Path]:
    """Return the tests, without those of the lint itself and those of operations, whose cases quote people."""
    left_out = {"ops", "test_voice.py"}
    return sorted(path for path in (ROOT / "tests").rglob("*.py") if not left_out & {*path.parts})


def in_page(path: Path) -> Iterator[Place]:
    text = _CODE.sub(lambda code: "x" + re.sub(r"[^\n]", " ", code[0])[1:], path.read_text())
    yield from _in_text(path, text, 1)


def in_source(path: Path) -> Iterator[Place]:
    text = path.read_text()
    if not _ANY.search(text):
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield from _in_text(path, _CODE.sub("x", token.string.lstrip("# ")), token.start[0])
    for node in ast.walk(ast.parse(text)):
        # A text with a backslash is a pattern.
        if (
            isinstance(node, ast.Constant)
            and isinstance(found := node.value, str)
            and " " in found
            and "\\" not in found
        ):
            yield from _in_text(path, _CODE.sub("x", found), node.lineno)


def in_names(path: Path) -> Iterator[Place]:
    """Yield the names of variables, functions and classes that have such a word."""
    text = path.read_text()
    if not _ANY_NAME.search(text):  # reading a file as Python takes long
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and not token.string.startswith("test_"):
            parts = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", token.string).lower().split("_")
            if _NAMES & {*parts}:
                yield Place(str(path.relative_to(ROOT)), token.start[0], token.string)


def in_test(path: Path) -> Iterator[Place]:
    """Yield the places in docstrings and in names of tests. Other texts of a test may be anything."""
    text = path.read_text()
    if not _ANY.search(text.replace("_", " ")):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = getattr(node, "name", "")
            words = name.replace("_", " ") if name.startswith("test_") else ""
            for prose in (ast.get_docstring(node) or "", words):
                yield from _in_text(path, _CODE.sub("x", prose), getattr(node, "lineno", 1))


def in_sql(path: Path) -> Iterator[Place]:
    """Yield the places in comments and in texts that a person may read, such as those of RAISE."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        code, _, comment = line.partition("--")
        texts = [text for text in _SQL_TEXT.findall(code) if " " in text]
        for text in [comment.strip(), *texts]:
            yield from _in_text(path, _CODE.sub("x", text), number)


def _in_text(path: Path, text: str, first: int) -> Iterator[Place]:
    for number, line in enumerate(text.splitlines(), first):
        for rule in (_BARE, _WORDS):
            for found in rule.finditer(line.strip()):
                yield Place(str(path.relative_to(ROOT)), number, line.strip()[found.start() :][:70])


def places() -> list[Place]:
    """Return every place that does not read as plain English."""
    kinds = (
        (pages(), in_page),
        (sources(), in_source),
        ([*sources(), *tests()], in_names),
        (scripts(), in_sql),
        (tests(), in_test),
    )
    return [place for paths, find in kinds for path in paths for place in find(path)]


def main() -> int:
    found = places()
    for place in found:
        print(f"{place.path}:{place.line}: {place.found}")
    print(f"{len(found)} places")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
