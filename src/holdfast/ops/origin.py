"""Whether a browser was made to ask by another site."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from holdfast.ops.refusal import Refused

if TYPE_CHECKING:
    from starlette.requests import Request

HEADER = "x-holdfast-csrf"
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_PORTS = {"http": 80, "https": 443}


def check_origin(request: Request) -> None:
    """Refuse what a browser sends on behalf of another site.

    Sec-Fetch-Site holds behind a proxy that changes the host too, and no page can set it. Programs send neither.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        if site != "same-origin":
            raise _refused()
        return
    origin = request.headers.get("origin")
    if origin is not None and not _same(origin, request.headers.get("host", "")):
        raise _refused()


def check_header(request: Request) -> None:
    """Refuse what a form or a link of another site could send: neither can set a header of its own."""
    if HEADER not in request.headers:
        raise Refused(403, "csrf", f"A session needs the header {HEADER} to act.")
    check_origin(request)


def _refused() -> Refused:
    return Refused(403, "csrf", "Another site asked for this.")


def _same(origin: str, host: str) -> bool:
    try:
        asked, ours = urlsplit(origin), urlsplit(f"//{host}")
        ports = asked.port, ours.port
    except ValueError:
        return False
    usual = _PORTS.get(asked.scheme)
    if usual is None or asked.hostname is None:
        return False
    return (asked.hostname, ports[0] or usual) == (ours.hostname, ports[1] or usual)
