"""A mutant: a place in a file of the package, and the text that replaces it."""

from __future__ import annotations

from typing import NamedTuple


class Site(NamedTuple):
    file: str
    """Its path below `src/holdfast`."""
    function: str
    """Such as `Reaper.reap`; of SQL, the function or the statement; `<module>` for a constant."""
    lines: tuple[int, int]
    """The first and the last line of the function."""
    line: int
    change: str
    start: int
    end: int
    old: str
    new: str

    @property
    def key(self) -> tuple[str, str, str]:
        """The name of the mutant in the list of accepted ones, which stays when its line moves."""
        return self.file, self.function, f"{' '.join(self.old.split())} -> {' '.join(self.new.split())}"

    def mutated(self, text: str) -> str:
        assert text[self.start : self.end] == self.old, f"{self.file}:{self.line} has changed"
        return text[: self.start] + self.new + text[self.end :]
