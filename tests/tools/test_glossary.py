"""The glossary has one sentence for every word of the project's vocabulary, each with a link."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "glossary.md").read_text("utf-8")
ENTRIES = dict(re.findall(r"^\| ([^|-][^|]*?) \| (.+) \|$", PAGE, re.MULTILINE))
del ENTRIES["word"]
WORDS = (
    "job kind handler queue status claim lease token heartbeat reap attempt outcome chain blocker event subscription",
    "sink runner tick run worker",
)


@pytest.mark.parametrize("word", [*" ".join(WORDS).split(), "dead letter", "order key", "unique key"])
def test_the_vocabulary_is_there(word: str) -> None:
    assert word in ENTRIES


def test_the_words_are_in_order() -> None:
    assert list(ENTRIES) == sorted(ENTRIES)


@pytest.mark.parametrize("word", ENTRIES)
def test_an_entry_is_one_sentence(word: str) -> None:
    text = re.sub(r"`[^`]*`|\([^)]*\)", "", ENTRIES[word])
    assert text.endswith(".")
    assert ". " not in text
    assert "](" in ENTRIES[word]
