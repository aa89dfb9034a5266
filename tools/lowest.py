"""Install the lowest versions that pyproject.toml allows, and verify that they are what is installed.

`python -m tools.lowest VENV` fills a virtualenv that exists. Tools for tests that are no dependencies of ours come in
the versions of requirements.txt.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tools import lock

ROOT = Path(__file__).parent.parent
_FLOOR = re.compile(r"([A-Za-z0-9-]+)(?:\[[a-z,]+\])?>=([0-9.]+)$")
_PIN = re.compile(r"^([a-z0-9-]+)(?:\[[a-z,]+\])?==(\S+)", re.MULTILINE)
# Checkers, which do not run here, greenlet, which must come with SQLAlchemy, and the libraries of the extras in _NEWER.
_UNUSED = re.compile(r"mypy|pyright|ruff|.*-stubs|import-linter|greenlet|mcp|pydantic-ai-slim")
# Extras that need newer versions of what the core needs: they are not part of the lowest set.
_NEWER = {"mcp", "pydantic-ai"}
# Their versions go together.
_ALIKE = {"opentelemetry-sdk": "opentelemetry-api", "opentelemetry-exporter-otlp-proto-grpc": "opentelemetry-api"}


def floors() -> dict[str, str]:
    """Return the requirement with the floor of every dependency, those of extras included, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [
        *project["dependencies"],
        *(line for name, extra in project["optional-dependencies"].items() if name not in _NEWER for line in extra),
    ]
    found: dict[str, str] = {}
    for line in listed:
        matched = _FLOOR.fullmatch(line)
        assert matched is not None, f"{line}: expected a name and a floor, such as redis>=5"
        name, floor = matched.groups()
        assert found.setdefault(name, floor) == floor, f"{name} has two floors"
    return found


def main() -> None:
    """Install them into the virtualenv given as the argument."""
    python = str(Path(sys.argv[1]) / "bin" / "python")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    ours = floors()
    pins = lock.pins()
    names = [re.split(r"[\[>=;]", line)[0] for line in project["dependency-groups"]["dev"]]
    pins |= {name: ours[alike] + ".*" for name, alike in _ALIKE.items()}
    tools = [f"{name}=={pins[name]}" for name in names if name not in ours and not _UNUSED.fullmatch(name)]
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python]
    extras = ",".join(set(project["project"]["optional-dependencies"]) - _NEWER)
    subprocess.run([*install, "--resolution", "lowest-direct", f"-e{ROOT}[{extras}]", *tools], check=True)
    listed = subprocess.run(
        [sys.executable, "-m", "uv", "pip", "list", "--python", python, "--format=freeze"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    installed = dict(_PIN.findall(listed.lower()))
    wrong = [
        f"{name} {installed[name]}, where {floor} is claimed"
        for name, floor in sorted(ours.items())
        if parts(installed[name]) != parts(floor)
    ]
    if wrong:
        raise SystemExit("installed is " + "; ".join(wrong))
    print("lowest versions:", ", ".join(f"{name} {installed[name]}" for name in sorted(ours)))


def parts(version: str) -> list[int]:
    """Return the numbers of a version, without zeros at the end."""
    parts = [int(part) for part in re.findall(r"\d+", version)]
    while parts and parts[-1] == 0:
        parts.pop()
    return parts


if __name__ == "__main__":
    main()
