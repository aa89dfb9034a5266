"""The long parts of the check: which of them are proven for the content of this checkout, and running them whole.

    python -m tools.parts              the state of each part
    python -m tools.parts plan         the same, on standard error; on standard output the names that .ci/run runs whole
    python -m tools.parts run stale    run whole what is not proven, and record what was green in .ci/proven
    python -m tools.parts run all      the same for all parts
    python -m tools.parts run lab ha   the same for some

A part is proven if .ci/proven has its key: a hash of the path and content of every file it depends on, wherever the
commits came from. tools/parts.toml lists the parts.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import subprocess
import sys
import time
import tomllib
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "tools" / "parts.toml"
PROVEN = ROOT / ".ci" / "proven"
POSTGRES = "18"
HEAD = """\
# What `python -m tools.parts run` found green: the part, the key of the content it depends on, and the result.
# The key is a hash of files and not of commits: it stays true after a rebase. Written by that command alone.
"""


class Part(NamedTuple):
    name: str
    proves: str
    depends: tuple[str, ...]
    """Glob patterns as git reads them."""
    whole: Literal["changed", "nightly"] = "nightly"
    """When .ci/run runs all of it: when it is not proven, or never."""
    tests: tuple[str, ...] = ()
    """Folders and files: what is marked `nightly` there, unless another part names the place more closely."""
    command: str = ""
    """A command in place of tests; `{venv}` stands for the virtualenv."""


class Proof(NamedTuple):
    key: str
    result: str
    """The day, the versions, how many tests and seconds."""


@cache
def parts(table: Path = TABLE) -> dict[str, Part]:
    """Return the parts by name, in the order of the table."""
    read: dict[str, Any] = tomllib.loads(table.read_text("utf-8"))
    code: list[str] = read.pop("code")
    found: dict[str, Part] = {}
    for name, row in read.items():
        depends = [
            pattern for given in row.pop("depends", ["code"]) for pattern in (code if given == "code" else [given])
        ]
        found[name] = Part(name, row.pop("proves"), tuple(depends), tests=tuple(row.pop("tests", ())), **row)
    return found


def files(patterns: Iterable[str]) -> list[str]:
    """Return the files that match and that git knows or would add, sorted."""
    command = [
        "git",
        "--glob-pathspecs",
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
        "--",
        *patterns,
    ]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted({name for name in listed.split("\0") if name and (ROOT / name).is_file()})


def key(patterns: Iterable[str]) -> str:
    """Return the hash of the files' paths and content as they are in the working tree."""
    total = hashlib.sha256()
    for name in files(patterns):
        content = hashlib.sha256((ROOT / name).read_bytes()).hexdigest()
        total.update(f"{content} {name}\n".encode())
    return total.hexdigest()[:16]


def proven() -> dict[str, Proof]:
    """Return the recorded proofs by the name of their part."""
    lines = PROVEN.read_text("utf-8").splitlines() if PROVEN.exists() else []
    rows = [line.split(maxsplit=2) for line in lines if line and not line.startswith("#")]
    return {name: Proof(key, result) for name, key, result in rows}


def record(name: str, proof: Proof) -> None:
    """Write a proof in place of the part's last one."""
    kept = proven() | {name: proof}
    width = max(map(len, kept))
    rows = [f"{name:{width}}  {proof.key}  {proof.result}\n" for name, proof in sorted(kept.items())]
    PROVEN.write_text(HEAD + "".join(rows), "utf-8")


class Standing(NamedTuple):
    """A part beside the content of this checkout."""

    part: Part
    key: str
    proof: Proof | None

    @property
    def is_proven(self) -> bool:
        return self.proof is not None and self.proof.key == self.key

    @property
    def runs_whole(self) -> bool:
        """Whether .ci/run runs all of it."""
        return self.part.whole == "changed" and not self.is_proven

    def __str__(self) -> str:
        last = f"the last proof is of {self.proof.key}, {self.proof.result}" if self.proof else "no proof is recorded"
        if self.is_proven:
            return f"proven for {self.key}, {self.proof.result if self.proof else ''}"
        if self.runs_whole:
            return f"not proven for {self.key}, runs whole: {last}"
        return f"NOT PROVEN for {self.key}, left to `make nightly`: {last}"


def standings() -> list[Standing]:
    """Return where each part stands."""
    proofs = proven()
    return [Standing(part, key(part.depends), proofs.get(name)) for name, part in parts().items()]


def run(part: Part) -> bool:
    """Run the whole part; if it is green and its files are the same afterwards, record it."""
    before = key(part.depends)
    print(f"=== {part.name}: {part.proves}", flush=True)
    begun = time.monotonic()
    ended = subprocess.Popen(_command(part), cwd=ROOT, env=_environment(), stdout=subprocess.PIPE, text=True)
    assert ended.stdout is not None
    last = ""
    with ended:
        for line in ended.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
    if ended.returncode:
        print(f"=== {part.name}: not green", flush=True)
        return False
    if key(part.depends) != before:
        print(f"=== {part.name}: not recorded, its files were changed meanwhile", flush=True)
        return False
    result = last if part.tests else f"green in {time.monotonic() - begun:.0f}s"
    day = datetime.now(UTC).date().isoformat()
    record(part.name, Proof(before, f"{day}, Python {platform.python_version()}, PostgreSQL {POSTGRES}: {result}"))
    return True


def _command(part: Part) -> list[str]:
    if part.command:
        return ["sh", "-c", part.command.format(venv=sys.prefix)]
    return [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--processes",
        "4",
        "-p",
        "no:cacheprovider",
        "--part",
        part.name,
        *part.tests,
    ]


def _environment() -> dict[str, str]:
    return os.environ | {"HOLDFAST_TEST_POSTGRES": POSTGRES}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.parts", description=__doc__)
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("plan")
    commands.add_parser("run").add_argument("names", nargs="+", choices=[*parts(), "all", "stale"])
    chosen = parser.parse_args(argv)
    found = standings()
    if chosen.command == "run":
        named = [
            standing.part
            for standing in found
            if {standing.part.name, "all"} & set(chosen.names) or ("stale" in chosen.names and not standing.is_proven)
        ]
        green = [run(part) for part in named]
        return int(not all(green))
    width = max(len(standing.part.name) for standing in found)
    for standing in found:
        print(f"{standing.part.name:{width}}  {standing}", file=sys.stderr)
    if chosen.command == "plan":
        print(*(standing.part.name for standing in found if standing.runs_whole))
    return 0


if __name__ == "__main__":
    sys.exit(main())
