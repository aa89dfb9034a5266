"""A guide of how to move: its files and its commands, as a reader would take them from the page."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tests.docs.block import ROOT, blocks
from tests.kit.commands import Output, holdfast

if TYPE_CHECKING:
    from pathlib import Path


class Guide:
    """A page of docs/how-to, followed in a folder."""

    def __init__(self, page: str, folder: Path, database: str) -> None:
        self._blocks = list(blocks(f"docs/how-to/{page}"))
        self.text = (ROOT / "docs" / "how-to" / page).read_text("utf-8")
        self.folder = folder
        self.database = database

    def texts(self, language: str) -> list[str]:
        return [block.text for block in self._blocks if block.language == language]

    def write_files(self) -> None:
        """Write each block that has the name of a file."""
        for block in self._blocks:
            if "." in block.title:
                path = self.folder / block.title
                path.parent.mkdir(exist_ok=True)
                path.write_text(block.text)

    def commands(self) -> list[list[str]]:
        """The arguments of each `holdfast` command of the page, in its order."""
        lines = (shlex.split(line) for text in self.texts("sh") for line in text.splitlines())
        return [words[1:] for words in lines if words[:1] == ["holdfast"]]

    def run(self, *arguments: str) -> Output:
        return holdfast(*arguments, database=self.database, cwd=self.folder)

    def preview_and_apply(self) -> tuple[Output, Output]:
        """Run both commands of the page."""
        preview, apply = self.commands()
        assert [*preview, "--apply"] == apply or set(preview) < set(apply)
        return self.run(*preview), self.run(*apply)

    def work(self) -> None:
        """Run what is due."""
        output = self.run("tick", "shop.jobs:app")
        assert output.status == 0, output
