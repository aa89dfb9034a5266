"""A tag agrees with every file that has the version, and the workflows are what they should be."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tools.release import ROOT, mistakes, notes

if TYPE_CHECKING:
    from pathlib import Path

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
RELEASE: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]


@pytest.fixture
def tagged(tmp_path: Path) -> Path:
    """A checkout in which everything has the version 1.2.3."""
    (tmp_path / "deploy" / "chart").mkdir(parents=True)
    for name in ("pyproject.toml", "deploy/chart/Chart.yaml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    change(tmp_path / "pyproject.toml", r'^version = ".*"', 'version = "1.2.3"')
    change(tmp_path / "deploy/chart/Chart.yaml", r"^version: .*", "version: 1.2.3")
    change(tmp_path / "deploy/chart/Chart.yaml", r"^appVersion: .*", 'appVersion: "1.2.3"')
    change(tmp_path / "CHANGELOG.md", r"^## \[Unreleased\]", "## [Unreleased]\n\n## [1.2.3] - 2026-12-31")
    return tmp_path


def change(path: Path, pattern: str, text: str) -> None:
    changed, count = re.subn(pattern, text, path.read_text(), count=1, flags=re.MULTILINE)
    assert count == 1
    path.write_text(changed)


def test_a_tag_that_everything_agrees_with_is_released_with_its_notes(tagged: Path) -> None:
    assert mistakes("v1.2.3", tagged) == []
    assert "### Added" in notes("v1.2.3", tagged)
    assert "[Unreleased]" not in notes("v1.2.3", tagged)


@pytest.mark.parametrize(
    ("file", "pattern", "text"),
    [
        ("pyproject.toml", r'^version = ".*"', 'version = "1.2.4"'),
        ("deploy/chart/Chart.yaml", r"^version: .*", "version: 1.2.2"),
        ("deploy/chart/Chart.yaml", r"^appVersion: .*", 'appVersion: "1.2.2"'),
        ("CHANGELOG.md", r"^## \[1.2.3\] - .*", "## [1.2.3]"),
    ],
)
def test_one_file_that_disagrees_is_named(tagged: Path, file: str, pattern: str, text: str) -> None:
    change(tagged / file, pattern, text)
    (line,) = mistakes("v1.2.3", tagged)
    assert line.startswith(file)


@pytest.mark.parametrize("tag", ["1.2.3", "v1.2", "v1.2.3.dev0", "v1.2.3rc1"])
def test_a_tag_of_another_form_is_refused(tagged: Path, tag: str) -> None:
    assert any("expected a tag" in line for line in mistakes(tag, tagged))


def test_the_version_in_development_is_not_released() -> None:
    assert mistakes("v0.1.0")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_no_rights_of_its_own_and_every_action_is_a_commit(path: Path) -> None:
    read = yaml.safe_load(path.read_text())
    assert read["permissions"] == {}
    for job in read["jobs"].values():
        assert "permissions" in job
        assert "timeout-minutes" in job
        for step in job["steps"]:
            assert "uses" not in step or re.search(r"@[0-9a-f]{40}$", step["uses"])
    assert len(re.findall(r"uses: \S+@\S+ # v[\d.]+$", path.read_text(), re.MULTILINE)) == path.read_text().count(
        "uses:"
    )


def test_what_is_published_was_built_once_and_tested_and_a_person_approved() -> None:
    builds = [
        name for name, job in RELEASE.items() if any("make package" in step.get("run", "") for step in job["steps"])
    ]
    assert builds == ["build"]
    publishers = {
        name: job
        for name, job in RELEASE.items()
        if any("gh-action-pypi-publish" in step.get("uses", "") for step in job["steps"])
    }
    assert {name: job["environment"] for name, job in publishers.items()} == {
        "test-index": "test-index",
        "index": "index",
    }
    for name, job in publishers.items():
        assert job["permissions"] == {"id-token": "write"}, "it publishes and can do nothing else"
        assert "actions/checkout" not in str(job["steps"])
        assert "test" in before(name)
    assert {"test-index", "installed", "image"} <= before("index")
    assert "index" in before("release")


def before(name: str) -> set[str]:
    """Return the jobs that must be green before this one begins."""
    needs = RELEASE[name].get("needs", [])
    direct = {needs} if isinstance(needs, str) else set(needs)
    return direct.union(*(before(one) for one in direct))


def test_only_attested_and_versioned_by_digest() -> None:
    for name in ("image", "release"):
        (attest,) = [step for step in RELEASE[name]["steps"] if "attest" in step.get("uses", "")]
        assert attest["with"]["subject-digest"] == "${{ steps.push.outputs.digest }}"
    pushed = next(step["run"] for step in RELEASE["release"]["steps"] if step.get("id") == "push")
    assert '"$IMAGE@$DIGEST"' in pushed, "the image that was tested gets the version"
