"""The judge: from what was promised, what ran and what the database says, everything that must not have happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from labs.chaos import checks

if TYPE_CHECKING:
    from labs.chaos.evidence import Evidence

SHOWN = 5


class Violation(NamedTuple):
    """A check that did not hold, how often, and the first few cases."""

    check: str
    times: int
    cases: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.check}: {self.times}\n" + "\n".join(f"    {case}" for case in self.cases)


def judge(evidence: Evidence) -> list[Violation]:
    """Ask every check; an empty list is the verdict one hopes for."""
    found = {check.name: check.cases(evidence) for check in checks.CHECKS}
    return [Violation(name, len(cases), tuple(cases[:SHOWN])) for name, cases in found.items() if cases]
