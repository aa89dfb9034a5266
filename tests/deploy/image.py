"""The image of deploy/Containerfile as a folder: its steps run once for all tests of a run."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

from tests.deploy.containerfile import FILE, ROOT, Stage, as_user, copy, inside, run, stages


class Image(NamedTuple):
    root: Path

    @property
    def stage(self) -> Stage:
        return stages(FILE.read_text())[-1]

    @property
    def user(self) -> str:
        return self.stage.last("USER").text

    def environment(self, **given: str) -> dict[str, str]:
        """The environment of a container: what the image sets, and what is given."""
        found = {name: inside(value, self.root) for name, value in self.stage.environment.items()}
        found["PATH"] = found["PATH"].replace("$PATH", os.defpath)
        return {"LANG": "C.UTF-8", **found, **given}

    def command(self, *words: str) -> list[str]:
        """The process of a container that is started with these words, as its user."""
        return self.program(*self.stage.last("ENTRYPOINT").words, *words)

    def program(self, *words: str) -> list[str]:
        """Another program of the container, as its user."""
        found = shutil.which(words[0], path=str(self.root / "opt/holdfast/bin"))
        assert found is not None, f"{words[0]} is not in the image"
        return as_user(self.user, found, *words[1:])

    def healthcheck(self) -> list[str]:
        _, _, command = self.stage.last("HEALTHCHECK").text.partition("CMD ")
        return self.program(*json.loads(command))


def provide(folder: Path) -> Image:
    """Run the steps that build the image, unless another process did."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            build(folder)
            (folder / "ready").touch()
    return Image(folder)


def build(root: Path) -> None:
    *_, stage, last = stages(FILE.read_text())
    copy(stage, root)
    _take_dashboard(root)
    for step in stage.all("RUN"):
        run(step, root, _variables())
    assert not last.all("RUN"), "the last stage only copies"
    # The virtualenv stays where it was made: COPY --from=build has the same path on both sides.
    (root / "app").mkdir(exist_ok=True)


def _take_dashboard(root: Path) -> None:
    """Take the dashboard as `make dashboard` built it, where the first stage would build it with Node."""
    built = ROOT / "src/holdfast/_ops/pages"
    if built.is_dir():
        shutil.copytree(built, root / "src/src/holdfast/_ops/pages", dirs_exist_ok=True)


def _variables() -> dict[str, str]:
    """The environment of a step: programs, and where packages come from."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("PIP_", "SSL_")) or "proxy" in name.lower() or name == "HOME"
    }
    return inherited | {
        # What builds the wheel is in this environment already, in the version of the lock: see test_images.py.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.defpath]),
        # Not what is tested, and half of the time.
        "PIP_NO_COMPILE": "true",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
