"""For each statement of the documents, a change of the code that makes it false. Its test must see that.

One file per document in `mutations/` lists them: `statements`, `file`, and the text `old` there, which becomes `new`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import NamedTuple

MUTATIONS = Path(__file__).parent / "mutations"


class Mutation(NamedTuple):
    document: str
    statement: str
    file: Path
    """Relative to the checkout."""
    old: str
    """Occurs once in the file."""
    new: str

    def changed(self, text: str) -> str:
        found = text.count(self.old)
        assert found == 1, f"{self.file} has {found} times {self.old!r}"
        return text.replace(self.old, self.new)


def read_mutations() -> list[Mutation]:
    return [
        Mutation(listed["document"], statement, Path(one["file"]), one["old"], one["new"])
        for path in sorted(MUTATIONS.glob("*.toml"))
        for listed in [tomllib.loads(path.read_text())]
        for one in listed["mutation"]
        for statement in one["statements"]
    ]
