"""The files that hosts and tools of a project expect run what the project runs, and nothing from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_workflow_runs_the_check_and_nothing_else() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert re.findall(r"- run: (.+)", workflow) == [".ci/run"]
    assert re.findall(r"- uses: (\S+)@", workflow) == ["actions/checkout"]
    assert "contents: read" in workflow


def test_hooks_before_a_commit_are_local() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    assert re.findall(r"repo: (\S+)", hooks) == ["local"]
    assert len(re.findall(r"- id: ", hooks)) == len(re.findall(r"language: system", hooks))


def test_every_make_target_is_explained() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (phony,) = re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert set(phony.split()) - {"help"} == set(re.findall(r'@echo "make (\S+)', makefile))
    assert set(phony.split()) <= set(re.findall(r"^(\S+?):", makefile, re.MULTILINE))


@pytest.mark.parametrize("page", ["RELEASING.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_links_and_targets_of_a_page_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"\]\((?!https:)([^)#]+)\)", text):
        assert (ROOT / target).exists(), target
    for targets in re.findall(r"`make ([a-z ]+)`", text):
        for target in targets.split():
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
