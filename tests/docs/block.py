"""The fenced blocks of a page, in their order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Decisions and pages that a program writes show code as an illustration.
_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```$", re.DOTALL | re.MULTILINE)
_TITLE = re.compile(r'title="([^"]*)"')


class Block(NamedTuple):
    page: str
    """The page, from the repository's root."""
    line: int
    language: str
    title: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """Return every page with blocks that a reader may run."""
    found = [path for path in sorted(DOCS.rglob("*.md")) if path.parent.name != "decisions"]
    return ["README.md", *(str(path.relative_to(ROOT)) for path in found)]


def blocks(page: str) -> list[Block]:
    text = (ROOT / page).read_text("utf-8")
    found = []
    for fence in _FENCE.finditer(text):
        language, _, rest = fence["info"].strip().partition(" ")
        title = _TITLE.search(rest)
        line = text.count("\n", 0, fence.start()) + 1
        inside = "\n".join(line.removeprefix(fence["indent"]) for line in fence["text"].splitlines()) + "\n"
        found.append(Block(page, line, language, title[1] if title else "", inside))
    return found
