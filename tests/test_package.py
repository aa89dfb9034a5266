"""The contents of a package, the wheel and the sdist as they are built, and how fast the package is imported."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hatch_build import absolute

if TYPE_CHECKING:
    from email.message import Message

ROOT = Path(__file__).parent.parent
HOME = "https://github.com/holdfast-pg/holdfast"
# A process that only enqueues has no use for these.
NOT_IMPORTED = {"holdfast._engine.worker", "holdfast._relay.relays", "holdfast._ops", "holdfast._cli", "http.client"}
# All modules of ours that are imported, by what is run.
AT_THE_DOOR = {"holdfast", "holdfast._distribution", "holdfast._lazy"}
IMPORTED = {
    "import holdfast": AT_THE_DOOR,
    "import runpy; sys.argv = ['holdfast', '--help']; runpy.run_module('holdfast', run_name='__main__')": AT_THE_DOOR
    | {"holdfast._cli", "holdfast._cli.parser"},
}
# Importing psycopg and pydantic is most of it. It was 1.5 times as long when this was written.
LONGEST = 2.0
LEAST, MOST = 2, 6


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(  # noqa: S603 - hatchling, on this checkout
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)],
        cwd=ROOT,
        env=os.environ | {"HOLDFAST_DASHBOARD": "skip"},
        capture_output=True,
        check=True,
    )
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> zipfile.ZipFile:
    (found,) = dist.glob("holdfast_pg-*.whl")
    return zipfile.ZipFile(found)


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return Parser().parsestr(wheel.read(name).decode())


def test_a_wheel_is_typed_and_brings_the_plugin(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    assert {"holdfast/py.typed", "pytest_holdfast/py.typed", "pytest_holdfast/__init__.py"} <= names
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {
        "holdfast",
        "pytest_holdfast",
        "holdfast_pg",
    }
    assert any(name.startswith("holdfast/_store/sql/schema/") for name in names)


def test_a_package_names_its_home_its_authors_and_its_pythons(metadata: Message) -> None:
    urls = dict(line.split(", ") for line in metadata.get_all("Project-URL", []))
    assert urls["Repository"] == HOME
    assert all(url.startswith(HOME) for url in urls.values())
    assert metadata["Author"] == "The Holdfast authors"
    pythons = {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13, 14)}
    assert pythons | {"Typing :: Typed"} <= set(metadata.get_all("Classifier", []))
    assert metadata["License-Expression"] == "Apache-2.0 AND MIT"
    assert metadata["Metadata-Version"] == "2.4"


def test_the_readme_of_a_package_has_absolute_links_that_lead_somewhere(metadata: Message) -> None:
    targets = re.findall(r"\]\(([^)]+)\)", str(metadata.get_payload()))
    assert len(targets) > 10
    for target in targets:
        assert target.startswith(("https://", "#")), target
        if (place := re.fullmatch(rf"{re.escape(HOME)}/(?:blob|raw)/main/([^#]+).*", target)) is not None:
            assert (ROOT / place[1]).exists(), target


def test_links_are_made_absolute() -> None:
    text = "[a](docs/a.md#b) [![p](p.png)](p.md) [x](https://x/) [here](#here)"
    output = "[a](h/blob/v1.2/docs/a.md#b) [![p](h/raw/v1.2/p.png)](h/blob/v1.2/p.md) [x](https://x/) [here](#here)"
    assert absolute(text, "h", "1.2") == output
    assert absolute("[a](b.md)", "h", "1.2.dev0") == "[a](h/blob/main/b.md)"


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="what git keeps is known only in a clone")
def test_an_sdist_has_all_that_its_tests_need(dist: Path) -> None:
    (found,) = dist.glob("holdfast_pg-*.tar.gz")
    with tarfile.open(found) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    kept = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S607 - on PATH
    missing = {name for name in kept.stdout.splitlines() if (ROOT / name).is_file()} - names
    assert missing <= {".gitignore"}


@pytest.mark.parametrize(("code", "ours"), IMPORTED.items(), ids=["import", "--help"])
def test_what_is_not_used_yet_is_not_imported(code: str, ours: set[str]) -> None:
    """Neither psycopg nor pydantic nor asyncio: they take ten times as long as all the rest."""
    report = "sys.stderr.write(' '.join(sys.modules))"
    code = f"import contextlib, sys\nwith contextlib.suppress(SystemExit): {code}\n{report}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603 - ours
    modules = set(done.stderr.split())
    assert {name for name in modules if name.partition(".")[0] == "holdfast"} == ours
    assert not {"asyncio", "inspect", "logging", "psycopg", "pydantic"} & modules


def test_an_application_that_enqueues_imports_little() -> None:
    code = f"import sys; from holdfast import Holdfast; print(sorted({NOT_IMPORTED!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603 - ours
    assert done.stdout == "[]\n"


def test_importing_an_application_takes_little_more_than_its_dependencies() -> None:
    """Count processor time, the best of two turns or more, so that other processes on the machine matter little."""
    ours: list[float] = []
    beneath: list[float] = []
    while len(ours) < LEAST or (len(ours) < MOST and min(ours) / min(beneath) >= LONGEST):
        ours.append(_seconds("from holdfast import Holdfast"))
        beneath.append(_seconds("import psycopg, pydantic"))
    assert min(ours) / min(beneath) < LONGEST, (ours, beneath)


def _seconds(code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603 - ours
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
