"""Build the dashboard while a wheel or an sdist is made, and give the README of a package absolute links.

Where it cannot be built, because node or npm is not there or fails, the package is made without it and says so: the
API works all the same. HOLDFAST_DASHBOARD=require makes that an error, HOLDFAST_DASHBOARD=skip does not try. An
editable installation never builds it: `cd dashboard && npm install --no-save && npm run build`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_PAGES = "src/holdfast/_ops/pages"
_SECONDS = 900
_BANNER = "*" * 100
_WITHOUT = """\
THIS PACKAGE COMES WITHOUT THE DASHBOARD. Its API works, and its pages say that they are missing.
To put the dashboard in, install Node and npm and build again. HOLDFAST_DASHBOARD=require makes this an error.\
"""


class NotBuiltError(Exception):
    pass


class DashboardHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        wish = os.environ.get("HOLDFAST_DASHBOARD", "")
        if version == "editable" or wish == "skip":
            return
        root = Path(self.root)
        try:
            _build(root)
        except NotBuiltError as exc:
            if wish == "require":
                raise
            self._warn(f"The dashboard was not built: {exc}.")
        if (root / _PAGES / "index.html").is_file():
            # It is ignored by git, and so would be left out.
            build_data["artifacts"].append(f"/{_PAGES}/")
            if self.target_name == "wheel":
                self.metadata.core.license_files.append(f"{_PAGES}/notices.txt")
        else:
            self._warn(_WITHOUT)

    def _warn(self, text: str) -> None:
        """Print a banner, since one line is lost among those of a build."""
        for line in ("", _BANNER, *text.splitlines(), _BANNER, ""):
            self.app.display_warning(line)


class ReadmeHook(MetadataHookInterface):
    """Links of the README are relative, for a clone. On the package index they are absolute, to its version."""

    def update(self, metadata: dict[str, Any]) -> None:
        home = metadata["urls"]["Repository"]
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, home, metadata["version"])}


def absolute(text: str, home: str, version: str) -> str:
    """Return the text with absolute links instead of relative ones: to pictures as files, to all else as pages.

    They lead to the tag of the version. A version in development has none, and they lead to the branch.
    """
    at = "main" if ".dev" in version else f"v{version}"

    def link(match: re.Match[str]) -> str:
        view = "raw" if match[1].endswith((".png", ".svg")) else "blob"
        return f"]({home}/{view}/{at}/{match[1]})"

    return re.sub(r"\]\((?![a-z]+:|#)([^)\s]+)\)", link, text)


def _build(root: Path) -> None:
    """Build it, unless this is the inside of an sdist that brought it along."""
    if (root / "PKG-INFO").is_file() and (root / _PAGES / "index.html").is_file():
        return
    folder = root / "dashboard"
    if not (folder / "package.json").is_file():
        raise NotBuiltError("its sources are not here")
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise NotBuiltError("node and npm are needed for it, and are not on PATH")
    if not _installed(folder):
        _run(folder, npm, "install", "--no-save", "--no-audit", "--no-fund")
    _run(folder, npm, "run", "build")


def _installed(folder: Path) -> bool:
    """Whether what the lock file names was installed after it was written."""
    installed, lock = folder / "node_modules" / ".package-lock.json", folder / "package-lock.json"
    return installed.is_file() and installed.stat().st_mtime >= lock.stat().st_mtime


def _run(folder: Path, *command: str) -> None:
    shown = " ".join(("npm", *command[1:]))
    try:
        done = subprocess.run(  # noqa: S603 - npm, as it is on PATH
            command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise NotBuiltError(f"`{shown}` took longer than {_SECONDS} s") from None
    if done.returncode != 0:
        raise NotBuiltError(f"`{shown}` failed:\n{(done.stderr or done.stdout).strip()[-2000:]}")
