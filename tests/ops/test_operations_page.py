"""The page on the HTTP API names every route and its role."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast._ops.routes import ROUTES

PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "http-api.md"


def test_the_page_lists_every_route_with_its_role() -> None:
    listed: dict[str, str] = {}
    for routes, role in re.findall(
        r"^\| (`(?:GET|POST|PUT|DELETE) /.*?) \| .* \| (\w*) *\|$", PAGE.read_text(), re.MULTILINE
    ):
        listed |= dict.fromkeys(re.findall(r"`([^`]+)`", routes), role)
    assert listed == {f"{route.method} {route.path}": route.role or "" for route in ROUTES}


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE.read_text()):
        assert (PAGE.parent / target).exists(), target
