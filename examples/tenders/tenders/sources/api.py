"""The API of ChileCompra: the tenders of a day in short, and each of them in full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenders.money import whole_pesos
from tenders.sources.record import LONGEST_CODE, Licitacion, text_of
from tenders.times import read_local

if TYPE_CHECKING:
    from datetime import date

    import httpx

    from tenders.config import Config

# A day has some hundred tenders. More than this in one answer is not read.
MOST = 5_000


class SourceError(Exception):
    """A source answered something that is not a list of tenders."""


async def fetch_summary(http: httpx.AsyncClient, config: Config, day: date) -> list[Licitacion]:
    """Return the tenders that were published on a day of Santiago, with a few fields each."""
    entries = await _fetch(http, config, fecha=f"{day:%d%m%Y}")
    return [record for entry in entries[:MOST] if (record := _short(entry)) is not None]


async def fetch_detail(http: httpx.AsyncClient, config: Config, codigo: str) -> Licitacion | None:
    """Return all that the API knows of a tender. None: it does not know it."""
    entries = await _fetch(http, config, codigo=codigo)
    return _full(entries[0]) if entries else None


async def _fetch(http: httpx.AsyncClient, config: Config, **query: str) -> list[dict[str, Any]]:
    answer = await http.get(config.api_url, params={**query, "ticket": config.api_ticket})
    answer.raise_for_status()
    try:
        entries: Any = answer.json()["Listado"]
    except (ValueError, KeyError, TypeError):
        raise SourceError("the API answered without a Listado") from None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise SourceError("the Listado of the API is not a list of objects")
    return entries


def _short(entry: dict[str, Any]) -> Licitacion | None:
    codigo = text_of(entry.get("CodigoExterno"))
    if codigo is None or len(codigo) > LONGEST_CODE:
        return None
    return Licitacion(
        codigo_externo=codigo,
        nombre=text_of(entry.get("Nombre")),
        fecha_cierre=read_local(text_of(entry.get("FechaCierre")) or ""),
    )


def _full(entry: dict[str, Any]) -> Licitacion | None:
    short = _short(entry)
    if short is None:
        return None
    buyer, dates, items = (_object(entry, name) for name in ("Comprador", "Fechas", "Items"))
    first: Any = next(iter(items.get("Listado") or []), None)
    in_pesos = entry.get("Moneda") in {None, "", "CLP"}
    amount: Any = entry.get("MontoEstimado")
    return Licitacion(
        codigo_externo=short.codigo_externo,
        nombre=short.nombre,
        organismo=text_of(buyer.get("NombreOrganismo")),
        region=text_of(buyer.get("RegionUnidad")),
        rubro=text_of(first.get("Categoria")) if isinstance(first, dict) else None,
        descripcion=text_of(entry.get("Descripcion")),
        monto=whole_pesos(amount) if in_pesos and isinstance(amount, int | float) else None,
        fecha_publicacion=read_local(text_of(dates.get("FechaPublicacion")) or ""),
        fecha_cierre=read_local(text_of(dates.get("FechaCierre")) or "") or short.fecha_cierre,
    )


def _object(entry: dict[str, Any], name: str) -> dict[str, Any]:
    found: Any = entry.get(name)
    return found if isinstance(found, dict) else {}
