"""Each extra installs alone. `make extras` tries all of them, on the oldest and the newest Python."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tools.extras import CORE, PROMISES, try_extra

ROOT = Path(__file__).parents[2]
# Those that once failed alone, and one with many dependencies. The others take a minute.
EVERYDAY = (CORE, "sqlalchemy", "ops")


def test_every_extra_promises_something() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(PROMISES) == {CORE, *project["optional-dependencies"]}


@pytest.mark.nightly(daily=["core"])
@pytest.mark.parametrize("extra", EVERYDAY, ids=lambda extra: extra or "core")
def test_it_installs_alone_and_imports(wheel: Path, extra: str, tmp_path: Path) -> None:
    try_extra(wheel, extra, tmp_path / "venv")


@pytest.mark.prove
@pytest.mark.parametrize("extra", sorted(set(PROMISES) - set(EVERYDAY)))
def test_the_others_install_alone_and_import(wheel: Path, extra: str, tmp_path: Path) -> None:
    try_extra(wheel, extra, tmp_path / "venv")


@pytest.mark.nightly
def test_what_is_missing_is_found(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROMISES, CORE, "import starlette")
    with pytest.raises(RuntimeError, match="No module named 'starlette'"):
        try_extra(wheel, CORE, tmp_path / "venv")
