"""A page is read in one sitting, and a how-to page shows first how to do it."""

from __future__ import annotations

from tests.docs.block import DOCS

LONGEST = 2_500
# A table of commands, in which readers search.
SEARCHED = {"cli.md"}
# Words before the first snippet of a how-to page.
SOON = 75
# They lead to files, describe pages, or rehearse in steps.
WITHOUT = {"index.md", "deploy.md", "dashboard.md", "zero-downtime-deploys.md"}


def test_no_page_is_too_long() -> None:
    lengths = {page: len(page.read_text("utf-8").split()) for page in DOCS.rglob("*.md") if page.name not in SEARCHED}
    assert {page.name: length for page, length in lengths.items() if length > LONGEST} == {}


def test_a_how_to_page_begins_with_a_snippet() -> None:
    pages = {page.name: page.read_text("utf-8") for page in (DOCS / "how-to").glob("*.md")}
    before = {name: len(text.partition("```")[0].split()) for name, text in pages.items() if name not in WITHOUT}
    assert {name: words for name, words in before.items() if words > SOON} == {}
