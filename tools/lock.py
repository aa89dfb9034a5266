"""One lock for everything that is installed here: requirements.txt, each package with the hashes of its files.

    python -m tools.lock              write it anew, with the newest versions: `make lock`
    python tools/lock.py image        print the part of it that goes into the image, or `build`, or `uv`

All of the file is what development needs. It has the hashes of the files that Linux and macOS install, and of every
source archive, from which another platform builds.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "requirements.txt"
HEAD = "# Written by `make lock`. All of it is for development; a comment names the smaller sets that have a package.\n"
# The sets, as options of `uv export`. The groups are in pyproject.toml.
SETS = {
    "build": ["--only-group", "build"],
    "image": ["--no-dev", "--extra", "binary", "--extra", "cli", "--extra", "ops", "--extra", "prometheus"],
    "uv": ["--only-group", "uv"],
}
_DEVELOPMENT = ["--all-extras", "--all-groups"]
_WHEEL = re.compile(r"-(?P<python>[^-]+)-(?P<abi>[^-]+)-(?P<platform>[^-]+)\.whl$")
_PLATFORM = re.compile(r"any|(many)?linux\S*_(x86_64|aarch64)|macosx\S*_(arm64|universal2)")
_PYTHON = re.compile(r"py3\d*|cp31[1-4]")


def packages(text: str) -> list[str]:
    """Return the packages of a requirements file: a line with name, version and marker, and indented lines."""
    return [part for part in re.split(r"^(?=\S)", text, flags=re.MULTILINE) if part and not part.startswith("#")]


def hashes() -> dict[tuple[str, str], list[str]]:
    """Return the sha256 of the files of every package, in hexadecimal, by its name and version."""
    return {
        _name_and_version(package): re.findall(r"--hash=sha256:([0-9a-f]{64})", package)
        for package in packages(LOCK.read_text("utf-8"))
    }


def pins() -> dict[str, str]:
    """Return the locked version of every package; the newest if it depends on the version of Python."""
    return dict(hashes().keys())


def select(name: str) -> str:
    """Return what belongs to a set, as a requirements file."""
    named = re.compile(rf"^ +# .*\b{name}\b", re.MULTILINE)
    chosen = [package for package in packages(LOCK.read_text("utf-8")) if named.search(package)]
    if not chosen:
        raise SystemExit(f"{LOCK.name}: no package is in the set {name}")
    return "".join(chosen)


def is_ours(file: str) -> bool:
    """Whether a file of a release is for a platform and a Python that Holdfast runs on."""
    wheel = _WHEEL.search(file)
    if wheel is None:
        return True
    runs = wheel["abi"] == "abi3" or any(map(_PYTHON.fullmatch, wheel["python"].split(".")))
    return runs and not wheel["abi"].endswith("t") and _PLATFORM.fullmatch(wheel["platform"]) is not None


def write() -> None:
    """Resolve the newest versions and write the file."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(ROOT / "pyproject.toml", folder)
        _uv(folder, "lock")
        locked = tomllib.loads((folder / "uv.lock").read_text("utf-8"))
        left_out = {
            file["hash"]
            for package in locked["package"]
            for file in package.get("wheels", [])
            if not is_ours(file["url"].rpartition("/")[2])
        }
        sets = {name: set(map(_name_and_version, _export(folder, *options))) for name, options in SETS.items()}
        exported = _export(folder, *_DEVELOPMENT)
    LOCK.write_text(HEAD + "".join(_entry(package, left_out, sets) for package in exported), "utf-8")


def _entry(package: str, left_out: set[str], sets: dict[str, set[tuple[str, str]]]) -> str:
    first, *_ = package.partition(" \\\n")
    kept = [found for found in re.findall(r"--hash=(\S+)", package) if found not in left_out]
    if not kept:  # only for another platform
        return ""
    lines = [first, *(f"    --hash={found}" for found in kept)]
    named = [name for name, members in sets.items() if _name_and_version(package) in members]
    return " \\\n".join(lines) + "\n" + (f"    # {', '.join(named)}\n" if named else "")


def _name_and_version(package: str) -> tuple[str, str]:
    name, _, rest = package.partition("==")
    return name, re.split(r"[\s;]", rest, maxsplit=1)[0]


def _export(folder: Path, *options: str) -> list[str]:
    plain = ("--no-header", "--no-annotate", "--no-emit-project", "--frozen")
    return packages(_uv(folder, "export", "--format", "requirements-txt", *plain, *options))


def _uv(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "uv", "--quiet", "--directory", str(folder), *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    if len(sys.argv) == 1:
        write()
    else:
        print(select(sys.argv[1]), end="")
