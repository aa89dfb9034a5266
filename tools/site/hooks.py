"""Hooks of mkdocs: generated pages, links from pages to files of the repository, and the pages as plain Markdown.

A page may link to any file of the repository, as on a code host. The site then has a page with that file's text.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.structure.files import File, Files

from tools.site import generated, scripts

if TYPE_CHECKING:
    from collections.abc import Callable

    from jinja2 import Environment
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
SOURCE = "source"
_ALWAYS = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
_LINK = re.compile(r"(?<!!)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_CODE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
# Readers who search want to do something, before they want to know why it was decided.
_BOOSTS = {"tutorials/": 3, "how-to/": 4, "reference/api/": 0.3, "decisions/": 0.2, f"{SOURCE}/": 0.2}
_LISTED = ("tutorials", "how-to", "explanation", "reference")
_PICTURES = (".svg", ".png")
_LANGUAGES = {
    ".py": "python",
    ".sql": "sql",
    ".yml": "yaml",
    ".yaml": "yaml",
    ".json": "json",
    ".toml": "toml",
    ".service": "ini",
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace `folder/*` in the navigation by the pages of the folder."""
    config.nav = _expanded(config.nav)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, the pages of source files, and the scripts."""
    for place, text in generated.pages().items():
        files.append(File.generated(config, place, content=text))
    for path in _linked_files(files):
        if path.endswith(_PICTURES):
            files.append(File.generated(config, _page_of(path), abs_src_path=str(ROOT / path)))
        else:
            files.append(File.generated(config, _page_of(path), content=_shown(path)))
    for place, script in scripts.SCRIPTS.items():
        files.append(File.generated(config, place, abs_src_path=str(scripts.provide(script))))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - mkdocs passes these by name
    """Fill in the generated parts, and lead links that leave docs/ to the pages of source files."""
    place = page.file.src_uri
    boost = next((boost for folder, boost in _BOOSTS.items() if place.startswith(folder)), 1)
    page.meta.setdefault("search", {"boost": boost})
    markdown = generated.filled(markdown)
    if place.startswith(f"{SOURCE}/"):
        return markdown
    here = Path(place).parent

    def led(match: re.Match[str]) -> str:
        path = _outside(DOCS / here, match[1])
        if path is None:
            return match[0]
        return f"]({os.path.relpath(_page_of(path), here)})"

    return _outside_code(markdown, led)


def on_env(env: Environment, config: MkDocsConfig, files: Files) -> None:  # noqa: ARG001 - mkdocs passes these by name
    """Write each page as Markdown beside the page, and a list of them for programs that read text."""
    site = Path(config.site_dir)
    lists: dict[str, list[str]] = {folder: [] for folder in _LISTED}
    for file in files.documentation_pages():
        if (page := file.page) is not None and page.markdown is not None:
            place = site / file.src_uri
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(page.markdown, "utf-8")
            lists.get(file.src_uri.partition("/")[0], []).append(f"- [{page.title}]({file.src_uri})")
    parts = [f"## {folder.capitalize()}\n\n" + "\n".join(lines) for folder, lines in lists.items()]
    head = f"# {config.site_name}\n\n> {config.site_description}"
    (site / "llms.txt").write_text("\n\n".join([head, *parts]) + "\n", "utf-8")


def _expanded(nav: Any) -> Any:
    if isinstance(nav, list):
        return [_expanded(item) for item in nav]
    if isinstance(nav, dict):
        return {title: _expanded(item) for title, item in nav.items()}
    if not nav.endswith("/*"):
        return nav
    folder = nav.removesuffix("*")
    pages = {str(page.relative_to(DOCS)) for page in (DOCS / folder).glob("*.md")}
    pages |= {place for place in generated.pages() if place.startswith(folder)}
    return sorted(pages, key=lambda place: (Path(place).stem not in {"index", "README"}, Path(place).stem))


def _linked_files(files: Files) -> list[str]:
    """Return the files outside docs/ to which a page links, from the repository's root."""
    found = set(_ALWAYS)
    for file in files.documentation_pages():
        if file.generated_by is None and (source := file.abs_src_path):
            found |= _links(file.content_string, Path(source).parent)
    # A document beside the code of an example links to that code.
    for path in [path for path in found if path.endswith(".md") and path not in _ALWAYS]:
        found |= _links((ROOT / path).read_text("utf-8"), (ROOT / path).parent)
    return sorted(found)


def _links(text: str, folder: Path) -> set[str]:
    """Return the files outside docs/ to which a document of this folder links."""
    return {path for match in _LINK.finditer(text) if (path := _outside(folder, match[1]))}


def _page_of(path: str) -> str:
    return f"{SOURCE}/{path}" if path.endswith(_PICTURES) else f"{SOURCE}/{path.removesuffix('.md')}.md"


def _outside(folder: Path, link: str) -> str | None:
    if re.match(r"[a-z]+:", link):
        return None
    target = (folder / link).resolve()
    if target.is_relative_to(DOCS) or not target.is_relative_to(ROOT) or not target.exists():
        return None
    return str(target.relative_to(ROOT))


def _shown(path: str) -> str:
    """Return the page of a file or a folder."""
    place = ROOT / path
    if path.endswith(".md"):
        text = place.read_text("utf-8")
        return _led_from_root(text) if path in _ALWAYS else _led_from(place.parent, text)
    head = f"---\nsearch:\n  exclude: true\n---\n\n# {path}\n\n"
    if place.is_dir():
        inside = sorted(str(file.relative_to(place)) for file in place.rglob("*") if _is_source(file))
        return head + "\n".join(f"- `{name}`" for name in inside) + "\n"
    return f"{head}````{_LANGUAGES.get(place.suffix, 'text')}\n{place.read_text('utf-8')}\n````\n"


def _is_source(path: Path) -> bool:
    return path.is_file() and path.suffix != ".pyc" and "node_modules" not in path.parts


def _led_from_root(text: str) -> str:
    """Return a document of the root with links that are right where its page is."""

    def led(match: re.Match[str]) -> str:
        link, anchor = match[1], match[2] or ""
        if re.match(r"[a-z]+:", link):
            return match[0]
        if link.startswith("docs/"):
            return f"](../{link.removeprefix('docs/')}{anchor})"
        return f"]({link}{anchor})" if link in _ALWAYS else "](../index.md)"

    return _outside_code(text, led)


def _led_from(folder: Path, text: str) -> str:
    """Return a document of a folder outside docs/ with links to the pages of what it links to."""
    here = Path(SOURCE) / folder.relative_to(ROOT)

    def led(match: re.Match[str]) -> str:
        if (path := _outside(folder, match[1])) is not None:
            return f"]({os.path.relpath(_page_of(path), here)})"
        target = (folder / match[1]).resolve()
        inside = target.is_relative_to(DOCS) and target.exists()
        return f"]({os.path.relpath(target.relative_to(DOCS), here)}{match[2] or ''})" if inside else match[0]

    return _outside_code(text, led)


def _outside_code(text: str, led: Callable[[re.Match[str]], str]) -> str:
    """Replace the links of a page, without those inside of code blocks."""
    parts, end = [], 0
    for block in _CODE.finditer(text):
        parts += [_LINK.sub(led, text[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, _LINK.sub(led, text[end:])])
