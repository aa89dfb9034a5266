"""How a test names the statement that it proves: the document, and the statement in plain words.

Five documents describe workers that Holdfast replaces. Each test in this folder proves one statement of one of them,
and so do some tests of the examples; `tests/seeds/statements.md` is the table of all. A statement that we meet in
another way names the decision with the reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

MODES = "Worker Runtime Modes & Outbox Semantics"
DESIGN = "Worker Design"
LIFECYCLE = "Outbox Worker Lifecycle"
CYCLES = "NotiChileC worker architecture"
RULES = "020 - Processing and Lease Rules"
DOCUMENTS = (MODES, DESIGN, LIFECYCLE, CYCLES, RULES)

# Decisions that say why a statement is met in another way.
DIFFERENCES = "0054-where-the-documents-differ.md"
SHARDS_ARE_RANGES = "0003-the-claim.md"
PRECEDENCE = "0061-the-public-interface.md"
TICK_LIMITS_STARTS = "0025-stopping.md"


class Document:
    """Marks tests, and cases of parametrized tests, as proofs of this document's statements."""

    def __init__(self, title: str) -> None:
        self.title = title

    def states(self, text: str, *, differs: str = "") -> pytest.MarkDecorator:
        """Mark a test. `differs`: the file of the decision to do otherwise; the test shows what is done."""
        return pytest.mark.statement(self.title, text, differs)

    def case(self, text: str, *values: Any, differs: str = "") -> ParameterSet:
        """Return a case of a parametrized test; its id is the statement."""
        return pytest.param(*values, marks=self.states(text, differs=differs), id=text)
