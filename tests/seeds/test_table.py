"""The table of statements is complete, and the page shows it."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.kit.statement import DOCUMENTS
from tests.seeds.table import DOCS, PAGE, Table, page, read_table


@pytest.fixture(scope="module")
def table() -> Table:
    return read_table()


def test_at_least_150_statements_are_proved(table: Table) -> None:
    assert len(table.statements) >= 150


def test_every_document_is_represented(table: Table) -> None:
    found = Counter(one.document for one in table.statements)
    assert set(found) == set(DOCUMENTS)
    assert min(found.values()) >= 20


def test_no_statement_stands_twice(table: Table) -> None:
    found = Counter((one.document, one.text) for one in table.statements)
    assert [statement for statement, times in found.items() if times > 1] == []


def test_every_test_of_this_folder_names_its_statement(table: Table) -> None:
    assert table.unmarked == []


def test_what_is_met_in_another_way_names_a_decision_that_exists(table: Table) -> None:
    named = {one.differs for one in table.statements if one.differs}
    assert named
    assert [name for name in named if not (DOCS / "decisions" / name).is_file()] == []


def test_the_page_is_what_the_marks_say(table: Table) -> None:
    assert PAGE.read_text() == page(table.statements), "run python -m tests.seeds.table"
