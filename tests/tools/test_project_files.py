"""The files that hosts and tools of a project expect run what the project runs, and nothing from elsewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tools.postgres import VERSIONS

ROOT = Path(__file__).parents[2]


def test_the_parts_of_the_check_run_side_by_side_and_are_all_of_it() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert re.findall(r"- run: (.+)", workflow) == [".ci/run ${{ matrix.part }}"]
    (listed,) = re.findall(r"part: \[(.+)\]", workflow)
    script = (ROOT / ".ci" / "run").read_text()
    assert {part.split()[0] for part in listed.split(", ")} | {"all"} == set(
        re.findall(r"^  (\w+)\)$", script, re.MULTILINE)
    )
    shares = re.findall(r"suite (\d)/(\d)", listed)
    assert shares == [(str(number), str(len(shares))) for number in range(1, len(shares) + 1)]


def test_the_nightly_matrix_is_what_is_claimed() -> None:
    workflow = (ROOT / ".github" / "workflows" / "nightly.yml").read_text()
    classifiers = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())
    (images,) = re.findall(r"image: \[(.+)\]", workflow)
    assert re.findall(r"python:(3\.\d+)-", images) == classifiers
    assert f"postgres: {json.dumps([str(version) for version in VERSIONS])}" in workflow
    for target in re.findall(r"target: \[(.+)\]", workflow)[0].split(", "):
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


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
