"""Reads a unit of systemd, and runs its ExecStart as systemd would, as far as a process without systemd can."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, NamedTuple

from tests.deploy.containerfile import ROOT

if TYPE_CHECKING:
    from pathlib import Path


class Unit(NamedTuple):
    text: str

    @classmethod
    def read(cls, name: str) -> Unit:
        return cls((ROOT / "deploy" / name).read_text())

    def all(self, name: str) -> list[str]:
        return re.findall(rf"^{name}=(.*)$", self.text, re.MULTILINE)

    def one(self, name: str) -> str:
        (found,) = self.all(name)
        return str(found)

    def moved(self, folder: Path, program: Path) -> Unit:
        """Return the unit with the paths of this machine: the program, the application's folder, the settings."""
        text = self.text.replace("/srv/shop/.venv/bin/holdfast", str(program))
        return Unit(text.replace("/srv/shop", str(folder)).replace("/etc/holdfast.env", str(folder / "holdfast.env")))

    @property
    def command(self) -> list[str]:
        return shlex.split(self.one("ExecStart"))

    @property
    def environment(self) -> dict[str, str]:
        """The variables of Environment= alone."""
        return dict(word.split("=", 1) for line in self.all("Environment") for word in shlex.split(line))
