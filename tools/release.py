"""Check that the files of a release agree with its tag, and print its notes.

python -m tools.release check v1.2.3   fails unless every file that has the version has this one
python -m tools.release notes v1.2.3   prints the section of the changelog
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def mistakes(tag: str, root: Path = ROOT) -> list[str]:
    """Return what disagrees with the tag, a line each."""
    version = tag.removeprefix("v")
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    chart = (root / "deploy" / "chart" / "Chart.yaml").read_text("utf-8")
    found = {"pyproject.toml": project} | {
        f"deploy/chart/Chart.yaml, {name}": value.strip('"')
        for name, value in re.findall(r"^(version|appVersion): (\S+)$", chart, re.MULTILINE)
    }
    lines = [f"{place}: expected {version}, got {value}" for place, value in found.items() if value != version]
    if not re.fullmatch(r"v\d+\.\d+\.\d+", tag):
        lines.append(f"expected a tag such as v1.2.3, got {tag}")
    if not notes(tag, root):
        lines.append(f"CHANGELOG.md: expected a section ## [{version}] - 2026-12-31")
    return lines


def notes(tag: str, root: Path = ROOT) -> str:
    """Return the section of the changelog, empty if there is none."""
    text = (root / "CHANGELOG.md").read_text("utf-8")
    head = rf"^## \[{re.escape(tag.removeprefix('v'))}\] - \d{{4}}-\d\d-\d\d\n"
    found = re.search(head + r"(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else ""


def main() -> None:
    """Check a tag, or print its notes."""
    command, tag = sys.argv[1:]
    if wrong := mistakes(tag):
        raise SystemExit("\n".join(wrong))
    if command == "notes":
        print(notes(tag))


if __name__ == "__main__":
    main()
