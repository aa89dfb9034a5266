"""The pages lead to one another."""

from __future__ import annotations

import re

from tests.docs.block import DOCS, ROOT

EXAMPLES = (ROOT / "examples").glob("*/README.md")


def test_every_part_has_an_index_that_leads_to_all_its_pages() -> None:
    for part in ("tutorials", "how-to", "explanation", "reference"):
        index = (DOCS / part / "index.md").read_text("utf-8")
        pages = {page.name for page in (DOCS / part).glob("*.md")} - {"index.md"}
        assert {page for page in pages if f"({page})" not in index} == set(), part


def test_every_link_between_pages_leads_somewhere() -> None:
    generated = {DOCS / "reference" / "api"}
    for page in [ROOT / "README.md", ROOT / "CHANGELOG.md", *EXAMPLES, *DOCS.rglob("*.md")]:
        text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
        for target in re.findall(r"\]\((?![a-z]+:|#)([^)\s#]+)", text):
            assert (page.parent / target).exists() or (page.parent / target).parent in generated, f"{page}: {target}"


def test_the_index_of_decisions_has_each_once() -> None:
    folder = DOCS / "decisions"
    listed = re.findall(r"^\| \[\d{4}\]\((.*?)\)", (folder / "README.md").read_text("utf-8"), re.MULTILINE)
    assert listed == sorted(page.name for page in folder.glob("0*.md"))
