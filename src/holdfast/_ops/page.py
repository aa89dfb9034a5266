"""The dashboard's files, read once and served by exact name, so that path traversal is impossible."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from starlette.responses import Response

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

    from starlette.requests import Request

INDEX = "index.html"
_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "ico": "image/x-icon",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "png": "image/png",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
    "webmanifest": "application/manifest+json",
    "woff2": "font/woff2",
}
_PACKED = frozenset({"png", "woff2"})
_LEAST_PACKED = 1_000
_NOT_BUILT = b"""<!doctype html>
<html lang="en">
<title>Holdfast</title>
<h1>Holdfast</h1>
<p>The dashboard is not built here. In a checkout: <code>make dashboard</code>,
and start this process again. A wheel of Holdfast comes with it built.</p>
<p>The API is here all the same: <a href="api/openapi.json">api/openapi.json</a>.</p>
</html>
"""


@dataclass(frozen=True, slots=True)
class DashboardFile:
    """A file, ready to be sent."""

    data: bytes
    packed: bytes | None
    """The data compressed with gzip; None if that saves nothing."""
    media_type: str
    tag: str
    cached: str

    def response(self, request: Request) -> Response:
        headers = {"Cache-Control": self.cached, "ETag": self.tag, "Vary": "Accept-Encoding"}
        if request.headers.get("if-none-match") == self.tag:
            return Response(status_code=304, headers=headers)
        if self.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
            return Response(self.packed, media_type=self.media_type, headers=headers | {"Content-Encoding": "gzip"})
        return Response(self.data, media_type=self.media_type, headers=headers)


@cache
def pages() -> dict[str, DashboardFile]:
    """Return the files that this installation ships, or that were built here."""
    return read_pages(files("holdfast._ops").joinpath("pages"))


def read_pages(folder: Traversable) -> dict[str, DashboardFile]:
    """Return every file by its path below the application. `/` is the index page."""
    found = dict(_walk(folder)) if folder.is_dir() else {}
    return {f"/{name}": page for name, page in found.items()} | {"/": found.get(INDEX) or _page(INDEX, _NOT_BUILT)}


def _walk(folder: Traversable, below: str = "") -> Iterator[tuple[str, DashboardFile]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, f"{below}{entry.name}/")
        elif not entry.name.startswith("."):
            yield f"{below}{entry.name}", _page(f"{below}{entry.name}", entry.read_bytes())


def _page(name: str, data: bytes) -> DashboardFile:
    ending = name.rpartition(".")[2].lower()
    packed = gzip.compress(data, mtime=0) if len(data) >= _LEAST_PACKED and ending not in _PACKED else None
    # Asset names contain a hash of the content.
    immutable = name.startswith("assets/")
    return DashboardFile(
        data,
        packed,
        _TYPES.get(ending, "application/octet-stream"),
        f'"{hashlib.sha256(data).hexdigest()[:32]}"',
        "public, max-age=31536000, immutable" if immutable else "no-cache",
    )
