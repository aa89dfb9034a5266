from __future__ import annotations

import gzip
import re
from typing import TYPE_CHECKING

import pytest

from holdfast._ops.application import pages, read_pages
from tests.kit.asking import Asked, ask

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.applications import Starlette


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "assets" / "deep").mkdir(parents=True)
    (tmp_path / "index.html").write_text("<!doctype html><title>Built</title>")
    (tmp_path / "favicon.svg").write_text("<svg/>")
    (tmp_path / ".hidden").write_text("no")
    (tmp_path / "assets" / "index-a1b2.js").write_text("let x = 1;\n" * 500)
    (tmp_path / "assets" / "deep" / "font.woff2").write_bytes(b"\0" * 5_000)
    return tmp_path


def test_every_file_is_served_by_its_exact_name(folder: Path) -> None:
    found = read_pages(folder)
    assert set(found) == {"/", "/index.html", "/favicon.svg", "/assets/index-a1b2.js", "/assets/deep/font.woff2"}
    assert found["/"] is found["/index.html"]
    assert found["/favicon.svg"].media_type == "image/svg+xml"


def test_assets_are_kept_for_ever_and_the_first_page_is_asked_for_again(folder: Path) -> None:
    found = read_pages(folder)
    assert found["/"].cached == "no-cache"
    assert found["/assets/index-a1b2.js"].cached == "public, max-age=31536000, immutable"


def test_what_helps_is_compressed(folder: Path) -> None:
    script, font = read_pages(folder)["/assets/index-a1b2.js"], read_pages(folder)["/assets/deep/font.woff2"]
    assert script.packed is not None
    assert gzip.decompress(script.packed) == script.data
    assert font.packed is None


def test_where_it_is_not_built_a_page_says_how(tmp_path: Path) -> None:
    found = read_pages(tmp_path / "none")
    assert set(found) == {"/"}
    assert b"make dashboard" in found["/"].data


async def test_the_first_page_is_served_with_a_tag(site: Starlette) -> None:
    answered = await ask(site, Asked("GET", "/"))
    assert answered.status == 200
    assert answered.headers["content-type"] == "text/html; charset=utf-8"
    assert answered.headers["cache-control"] == "no-cache"
    same = await ask(site, Asked("GET", "/", headers=(("if-none-match", answered.headers["etag"]),)))
    assert (same.status, same.body) == (304, b"")
    assert same.headers["content-security-policy"] == answered.headers["content-security-policy"]
    assert (await ask(site, Asked("HEAD", "/"))).status == 200


async def test_every_file_of_this_installation_is_served(site: Starlette) -> None:
    for path, page in pages().items():
        plain = await ask(site, Asked("GET", path))
        packed = await ask(site, Asked("GET", path, headers=(("accept-encoding", "br, gzip"),)))
        assert plain.body == page.data
        assert "content-encoding" not in plain.headers
        assert (gzip.decompress(packed.body) if page.packed else packed.body) == page.data
        assert plain.headers["vary"] == "Accept-Encoding"


def test_the_first_page_names_nothing_by_an_absolute_address() -> None:
    links = re.findall(rb'(?:src|href)="([^"]*)"', pages()["/"].data)
    assert all(not link.startswith((b"/", b"http")) for link in links), links
    assert b"<script>" not in pages()["/"].data, "the policy allows no script in the page"
    assert b" style=" not in pages()["/"].data
