"""Check the built site: no page loads anything from another host.

python -m tools.site.check        print each place; the exit status is 1 if there is one
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

SITE = Path(__file__).parent.parent.parent / "site"
_LOADS = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data"}
_IN_STYLE = re.compile(r"(?:url\(|@import)\s*[\"']?(https?:)?//")


class _Loads(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get(_LOADS.get(tag, "")) or ""
        if re.match(r"(https?:)?//", address):
            self.found.append(address)


def foreign(site: Path = SITE) -> list[str]:
    """Return each address of another host that a page or a style sheet loads, with its place."""
    found = []
    for page in sorted(site.rglob("*.html")):
        parser = _Loads()
        parser.feed(page.read_text("utf-8"))
        found += [f"{page.relative_to(site)}: {address}" for address in parser.found]
    styles = (style for style in sorted(site.rglob("*.css")) if _IN_STYLE.search(style.read_text("utf-8")))
    return [*found, *(f"{style.relative_to(site)}: loads from another host" for style in styles)]


if __name__ == "__main__":
    if not (SITE / "index.html").is_file():
        sys.exit("there is no built site: run make docs")
    print("\n".join(places := foreign()), end="\n" if places else "")
    sys.exit(bool(places))
