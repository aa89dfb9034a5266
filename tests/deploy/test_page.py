"""docs/how-to/deploy.md shows what the files of deploy/ have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.deploy.containerfile import ROOT
from tests.docs.block import blocks
from tools.compose import commands

PAGE = "docs/how-to/deploy.md"
TEXT = (ROOT / PAGE).read_text("utf-8")


def lines() -> list[str]:
    """Return the commands of the page."""
    return [line for block in blocks(PAGE) if block.language == "sh" for line in block.text.splitlines()]


def test_every_file_is_led_to() -> None:
    named = {(ROOT / "docs" / "how-to" / link).resolve() for link in re.findall(r"\]\((\.\./[^)#]+)\)", TEXT)}
    assert ROOT / "deploy" in named
    read = (ROOT / "deploy" / "compose.yaml").read_text() + (ROOT / "deploy" / "Containerfile").read_text()
    for path in (ROOT / "deploy").iterdir():
        known = path in named or path.name in read or f"./{path.name}/" in read
        assert known or path.name in {"__pycache__", "Containerfile.dockerignore"}, path


def test_compose_takes_the_commands_of_its_file() -> None:
    shown = [line for line in lines() if line.startswith("docker compose")]
    assert shown == [f"docker compose --file deploy/compose.yaml {command}" for command in commands()]
    assert len(shown) == 3


@pytest.mark.parametrize("line", lines())
def test_files_that_a_command_names_exist(line: str) -> None:
    for name in re.findall(r"\bdeploy/[\w./-]+", line):
        assert (ROOT / name).exists(), name


def test_the_chart_is_installed_with_values_that_it_has() -> None:
    (line,) = [line for line in lines() if line.startswith("helm install")]
    assert re.findall(r"--set (\w+)=", line) == ["image", "app"]
    assert line in " ".join((ROOT / "deploy" / "chart" / "values.yaml").read_text().split())


def test_what_verifies_the_units_is_installed_by_the_check() -> None:
    (tried,) = re.findall(r"^## What was tried\n(.+)", TEXT, re.MULTILINE | re.DOTALL)
    assert "`systemd-analyze`" in tried
    assert "command -v systemd-analyze >/dev/null || debian systemd ||" in (ROOT / ".ci" / "run").read_text()


def test_the_grace_of_the_manifests_is_the_one_shown() -> None:
    manifest = (Path(ROOT) / "deploy" / "kubernetes" / "worker.yaml").read_text()
    (shown,) = re.findall(r"`(terminationGracePeriodSeconds: \d+)`", TEXT)
    assert shown in manifest
