"""The web page with the newest tenders. It may change or fail at any time: the cycle goes on without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bs4 import BeautifulSoup
from bs4.exceptions import ParserRejectedMarkup

from tenders.money import read_pesos
from tenders.sources.api import SourceError
from tenders.sources.record import LONGEST_CODE, Licitacion, text_of
from tenders.times import read_local

if TYPE_CHECKING:
    import httpx
    from bs4.element import Tag

    from tenders.config import Config

MOST = 20
# Bytes of a page that are read.
LARGEST = 2_000_000


async def scrape(http: httpx.AsyncClient, config: Config, limit: int = MOST) -> list[Licitacion]:
    """Return the newest tenders of the page, at most `limit`. Raises an error of httpx, or SourceError."""
    body = b""
    async with http.stream("GET", config.page_url) as answer:
        answer.raise_for_status()
        async for part in answer.aiter_bytes():
            body += part
            if len(body) > LARGEST:
                raise SourceError(f"the page has more than {LARGEST} bytes")
    return read_page(body.decode("utf-8", "replace"), limit)


def read_page(html: str, limit: int = MOST) -> list[Licitacion]:
    """Return the tenders of a page. Raises SourceError if it does not look like one."""
    try:
        results = BeautifulSoup(html, "html.parser").select_one("#resultados")
    except ParserRejectedMarkup as exc:
        raise SourceError("the page cannot be parsed") from exc
    if results is None:
        raise SourceError("the page has no results: it has changed")
    articles = results.select("article.licitacion", limit=limit)
    return [record for article in articles if (record := _read(article)) is not None]


def _read(article: Tag) -> Licitacion | None:
    codigo = _text(article, ".codigo")
    if codigo is None or len(codigo) > LONGEST_CODE:
        return None
    link = article.select_one("h3 a")
    return Licitacion(
        codigo_externo=codigo,
        nombre=_text(article, "h3"),
        organismo=_text(article, ".organismo"),
        region=_text(article, ".region"),
        monto=read_pesos(_text(article, ".monto") or ""),
        fecha_cierre=read_local(_text(article, ".cierre") or ""),
        url=text_of(link.get("href")) if link is not None else None,
    )


def _text(article: Tag, selector: str) -> str | None:
    found = article.select_one(selector)
    return None if found is None else text_of(" ".join(found.get_text().split()))
