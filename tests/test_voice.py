from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tools import voice

if TYPE_CHECKING:
    from pathlib import Path


def test_everything_people_read_is_plain_english() -> None:
    assert voice.places() == []


@pytest.mark.parametrize(
    ("sentence", "found"),
    [
        ("Who dies loses them when it ends.", 1),
        ("A worker that waits. Whoever enqueues wakes it.", 1),
        ("What is not known is said to be.", 2),
        ("Without a listener a pipeline is deaf.", 1),
        ("Nothing was told to the listeners.", 1),
        ("| `x` | What it did. |", 1),
        ("What happens at SIGTERM?", 0),
        ("It shows what was done.", 0),
        ("Run `told()`, see [stopping](#being-told-to-stop).", 0),
        ("A worker claims a batch of jobs.", 0),
    ],
)
def test_these_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentence: str, found: int) -> None:
    page = tmp_path / "page.md"
    page.write_text(sentence)
    monkeypatch.setattr(voice, "ROOT", tmp_path)
    assert len(list(voice.in_page(page))) == found


def test_comments_and_messages_of_sql_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source.sql"
    source.write_text("-- Who asks.\nSELECT 1;  -- is told\nRAISE EXCEPTION 'nobody holds it';\nSELECT told FROM x;\n")
    monkeypatch.setattr(voice, "ROOT", tmp_path)
    assert [place.line for place in voice.in_sql(source)] == [1, 2, 3]


@pytest.mark.parametrize("name", ["said", "_bell", "heardOf", "Courier", "job_said", "_SAID"])
def test_names_of_code_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    source = tmp_path / "source.py"
    source.write_text(f"label = aside = 1\n{name} = 2\n")
    monkeypatch.setattr(voice, "ROOT", tmp_path)
    assert [(place.line, place.found) for place in voice.in_names(source)] == [(2, name)]


def test_docstrings_comments_and_messages_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source.py"
    source.write_text('"""Who asks."""\n# What is told.\nraise ValueError("nobody holds it")\n')
    monkeypatch.setattr(voice, "ROOT", tmp_path)
    assert [place.line for place in voice.in_source(source)] == [2, 2, 1, 3]
