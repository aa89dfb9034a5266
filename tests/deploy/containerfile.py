"""Reads a container file, and runs its steps in a folder that stands for the root of the image."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "Containerfile"
# Folders of the image. Every one that the file names must be here, or a step would touch the machine's own.
FOLDERS = ("/opt/holdfast", "/wheels", "/src", "/app")
_FOLDER = re.compile(rf"(?<![\w.$/])(?:{'|'.join(FOLDERS)})(?![\w-])")


class Step(NamedTuple):
    name: str
    text: str

    @property
    def words(self) -> list[str]:
        """The words of a step in its list form, `["a", "b"]`, or separated by spaces."""
        return json.loads(self.text) if self.text.startswith("[") else shlex.split(self.text)


class Stage(NamedTuple):
    base: str
    name: str
    steps: list[Step]

    def all(self, name: str) -> list[Step]:
        return [step for step in self.steps if step.name == name]

    def last(self, name: str) -> Step:
        return self.all(name)[-1]

    @property
    def environment(self) -> dict[str, str]:
        return dict(word.split("=", 1) for step in self.all("ENV") for word in step.words)


def stages(text: str) -> list[Stage]:
    whole = re.sub(r"\\\n\s*", "", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE))
    found: list[Stage] = []
    for line in filter(None, map(str.strip, whole.splitlines())):
        name, _, rest = line.partition(" ")
        if name == "FROM":
            base, _, alias = rest.partition(" AS ")
            found.append(Stage(base, alias, []))
        else:
            found[-1].steps.append(Step(name, rest.strip()))
    return found


def inside(text: str, root: Path) -> str:
    """Return a text with the folders of the image below `root`."""
    return _FOLDER.sub(lambda folder: f"{root}{folder[0]}", text)


def copy(stage: Stage, root: Path) -> None:
    """Copy what the stage takes from the build context."""
    workdir = stage.last("WORKDIR").text
    for step in stage.all("COPY"):
        *sources, target = step.words
        if sources[0].startswith("--from="):
            continue
        place = Path(inside(str(Path(workdir, target)), root))
        for source in sources:
            origin = ROOT / source
            if origin.is_dir():
                left_out = shutil.ignore_patterns("__pycache__", "node_modules", "pages")
                shutil.copytree(origin, place, ignore=left_out, dirs_exist_ok=True)
            else:
                place.mkdir(parents=True, exist_ok=True)
                shutil.copy(origin, place)


def run(step: Step, root: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(  # noqa: S603 - the steps of our own file
        ["/bin/sh", "-c", inside(step.text, root)],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"RUN {step.text}\n{done.stdout}{done.stderr}"


def as_user(user: str, *command: str) -> list[str]:
    """Return a command that runs as the user of an image, if this process may change its user."""
    if os.geteuid() != 0:
        return list(command)
    uid, _, gid = user.partition(":")
    # Python itself may be in a folder that only root may enter. Nothing else is permitted beyond what the user has.
    only = (
        "--inh-caps=-all,+dac_read_search",
        "--ambient-caps=-all,+dac_read_search",
        "--bounding-set=-all,+dac_read_search",
    )
    return ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", *only, "--no-new-privs", "--", *command]
