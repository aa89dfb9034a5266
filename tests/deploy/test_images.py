"""The image and the services are built of fixed parts: images with digests, packages from a lock with hashes."""

from __future__ import annotations

import re
import tomllib

import pytest
import yaml

from tests.deploy.containerfile import FILE, ROOT, stages
from tools import lock
from tools.compose import services

# Ours, and a stage of the container file. What a user must replace is an example.
OURS = {"holdfast", "python"}
EXAMPLES = {"shop:1", ""}
SETS = ("build", "image")


def images() -> set[str]:
    """Return the images that are taken from a registry."""
    found = {stage.base for stage in stages(FILE.read_text())}
    found |= {service["image"] for service in services().values()}
    for path in (ROOT / "deploy" / "kubernetes").iterdir():
        found |= set(re.findall(r"^\s*(?:- )?image: *(\S+)", path.read_text(), re.MULTILINE))
    for path in (ROOT / ".github" / "workflows").iterdir():
        found |= set(re.findall(r"python:[\w.@:-]+", path.read_text()))
    found.add(yaml.safe_load((ROOT / "deploy" / "chart" / "values.yaml").read_text())["image"])
    return found - OURS - EXAMPLES


def listed() -> list[str]:
    """Return the images that RELEASING.md permits to have no digest."""
    _, _, text = (ROOT / "RELEASING.md").read_text().partition("## Images without a digest")
    return re.findall(r"^- `(\S+)`$", text, re.MULTILINE)


def test_every_image_has_a_digest_or_is_on_the_list_of_a_version_in_development() -> None:
    assert images()
    without = {image for image in images() if not re.search(r"@sha256:[0-9a-f]{64}$", image)}
    assert listed() == sorted(without)
    for image in without:
        assert re.search(r":v?\d[\w.-]*$", image), f"{image}: not even a version"
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert ".dev" in version or not without, f"{version}: give these images their digests, see RELEASING.md"


@pytest.mark.parametrize("name", SETS)
def test_a_set_has_every_package_that_it_needs_with_a_hash(name: str) -> None:
    chosen = lock.packages(lock.select(name))
    needed = {"build": {"hatchling"}, "image": {"psycopg-binary", "rich", "uvicorn", "prometheus-client"}}[name]
    assert {package.partition("==")[0] for package in chosen} > needed
    assert [package for package in chosen if "--hash=sha256:" not in package] == []
    assert len(chosen) < len(lock.hashes()) / 5


def test_the_lock_names_no_host() -> None:
    assert "://" not in lock.LOCK.read_text()


def test_every_package_of_the_image_comes_from_a_set_of_the_lock() -> None:
    steps = [step.text for stage in stages(FILE.read_text()) for step in stage.all("RUN")]
    installs = [part for text in steps for part in text.split("&&") if re.search(r"pip .*install|pip wheel", part)]
    assert len(installs) == 4
    for install in installs:
        assert "--require-hashes" in install or "--no-deps" in install, install
    (wheel,) = [install for install in installs if "pip wheel" in install]
    assert "--no-build-isolation" in wheel, "pip would fetch what builds it"
    for name in SETS:
        assert f"lock.py {name} > /src/{name}.txt" in " ".join(steps)
        assert f"--requirement /src/{name}.txt" in " ".join(installs)


@pytest.mark.parametrize(
    ("file", "is_ours"),
    [
        ("cffi-2.1.1.tar.gz", True),
        ("rich-14.2-py3-none-any.whl", True),
        ("cffi-2.1.1-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.whl", True),
        ("cffi-2.1.1-cp314-cp314-macosx_11_0_arm64.whl", True),
        ("ruff-0.17-py3-none-linux_aarch64.whl", True),
        ("obstore-0.8-cp39-abi3-manylinux_2_28_aarch64.whl", True),
        ("cffi-2.1.1-cp310-cp310-manylinux2014_x86_64.whl", False),
        ("cffi-2.1.1-cp314-cp314t-manylinux2014_x86_64.whl", False),
        ("cffi-2.1.1-cp314-cp314-win_amd64.whl", False),
        ("cffi-2.1.1-cp314-cp314-musllinux_1_2_x86_64.whl", False),
        ("lxml-6-pp311-pypy311_pp73-manylinux2014_x86_64.whl", False),
    ],
)
def test_hashes_are_kept_of_files_that_run_here(file: str, is_ours: bool) -> None:
    assert lock.is_ours(file) == is_ours
