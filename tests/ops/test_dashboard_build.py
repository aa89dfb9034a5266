"""The dashboard's client and how it comes into a package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tools.dashboard import CLIENT, client

ROOT = Path(__file__).parents[2]
NOTICES = "holdfast-0.dist-info/licenses/src/holdfast/_ops/pages/notices.txt"
NODE_MODULES = ROOT / "dashboard" / "node_modules"
PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "holdfast"
version = "0"

[tool.hatch.build.targets.wheel]
packages = ["src/holdfast"]

[tool.hatch.build.hooks.custom]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Make a package around the dashboard, its build hook and nothing else."""
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    (tmp_path / ".gitignore").write_text("/src/holdfast/_ops/pages/\nnode_modules/\n")
    shutil.copy(ROOT / "hatch_build.py", tmp_path)
    (tmp_path / "src" / "holdfast" / "_ops").mkdir(parents=True)
    (tmp_path / "src" / "holdfast" / "__init__.py").touch()
    shutil.copytree(ROOT / "dashboard", tmp_path / "dashboard", ignore=shutil.ignore_patterns("node_modules"))
    return tmp_path


def build(project: Path, target: str = "wheel", **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - hatchling, on a project of our own
        [sys.executable, "-m", "hatchling", "build", "-t", target],
        cwd=project,
        env={"PATH": os.defpath, "HOME": str(project), **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def names(project: Path) -> set[str]:
    (wheel,) = (project / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_client_is_that_of_the_document() -> None:
    assert CLIENT.read_text() == client(), "run `python -m tools.dashboard`"


def test_the_client_names_every_model_once() -> None:
    declared = re.findall(r"^export (?:interface|type) (\w+)", client(), re.MULTILINE)
    assert len(declared) == len(set(declared))
    assert {"Overview", "JobStory", "JobFilter", "JobAction", "Role", "Status", "ListJobsQuery"} <= set(declared)


def test_a_wheel_is_made_without_node_and_says_what_it_lacks(project: Path) -> None:
    done = build(project, PATH=str(project))
    assert done.returncode == 0, done.stderr
    assert "node and npm are needed" in done.stdout + done.stderr
    assert "THIS PACKAGE COMES WITHOUT THE DASHBOARD" in done.stdout + done.stderr
    assert "holdfast/__init__.py" in names(project)


def test_an_sdist_is_made_without_node(project: Path) -> None:
    assert build(project, "sdist", PATH=str(project)).returncode == 0


def test_a_wheel_that_must_have_the_dashboard_is_not_made_without_it(project: Path) -> None:
    done = build(project, PATH=str(project), HOLDFAST_DASHBOARD="require")
    assert done.returncode != 0
    assert "node and npm are needed" in done.stderr


def test_an_editable_installation_builds_nothing(project: Path) -> None:
    done = build(project, "wheel:editable", PATH=str(project), HOLDFAST_DASHBOARD="require")
    assert done.returncode == 0, done.stderr
    assert not (project / "src" / "holdfast" / "_ops" / "pages").exists()


def test_an_sdist_that_brought_the_dashboard_needs_no_node(project: Path) -> None:
    pages = project / "src" / "holdfast" / "_ops" / "pages"
    pages.mkdir()
    (pages / "index.html").write_text("built")
    (pages / "notices.txt").write_text("its licenses")
    (project / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: holdfast\nVersion: 0\n")
    done = build(project, PATH=str(project), HOLDFAST_DASHBOARD="require")
    assert done.returncode == 0, done.stderr
    assert {"holdfast/_ops/pages/index.html", NOTICES} <= names(project)


@pytest.mark.skipif(shutil.which("npm") is None or not NODE_MODULES.is_dir(), reason="`make dashboard` comes first")
def test_a_wheel_brings_the_dashboard_along_and_a_strict_policy_allows_it(project: Path) -> None:
    (project / "dashboard" / "node_modules").symlink_to(NODE_MODULES)
    done = build(project, PATH=os.environ["PATH"], HOLDFAST_DASHBOARD="require")
    assert done.returncode == 0, done.stderr
    found = names(project)
    assert {"holdfast/_ops/pages/notices.txt", NOTICES} <= found
    index = (project / "src" / "holdfast" / "_ops" / "pages" / "index.html").read_text()
    assert '<html lang="en">' in index
    # Nothing inline, nothing from elsewhere, and nothing that depends on the path it is mounted at.
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", index)
    addresses = re.findall(r'(?:src|href)="([^"]+)"', index)
    assert addresses
    for address in addresses:
        assert address.startswith("./")
        assert f"holdfast/_ops/pages/{address.removeprefix('./')}" in found
