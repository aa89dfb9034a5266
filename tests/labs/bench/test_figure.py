from __future__ import annotations

import pytest

from labs.bench.figure import Figure, Section, table
from labs.bench.report import replaced


@pytest.mark.parametrize(
    ("figure", "verdict"),
    [
        (Figure("a ratio", 0.92, least=0.92), "ok"),
        (Figure("a ratio", 0.91, least=0.92), "short"),
        (Figure("bytes", 1_300, limit=1_300), "ok"),
        (Figure("bytes", 1_301, limit=1_300), "short"),
        (Figure("for information", 7), ""),
    ],
)
def test_a_figure_is_judged_by_its_bar(figure: Figure, verdict: str) -> None:
    assert figure.verdict == verdict


def test_a_table_is_aligned() -> None:
    assert table(("", "jobs/s"), [("ours", "1"), ("x", "22")]).splitlines() == [
        "|      | jobs/s |",
        "| ---- | ------ |",
        "| ours | 1      |",
        "| x    | 22     |",
    ]


def test_a_section_shows_its_charts() -> None:
    assert "![pinned](charts/pinned.svg)" in Section([], charts={"pinned": "<svg/>"}).markdown()


def test_only_the_figures_between_the_markers_are_replaced() -> None:
    text = "before\n<!-- wal -->\nold\n<!-- /wal -->\nbetween\n<!-- pair -->\nkept\n<!-- /pair -->\n"
    assert replaced(text, "wal", "new") == text.replace("old", "\nnew\n")


def test_a_document_without_the_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="no place for wal"):
        replaced("nothing", "wal", "new")
