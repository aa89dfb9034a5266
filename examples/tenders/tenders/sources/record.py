"""A tender, as far as a source knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

# Longer texts are cut: they come from servers of others.
LONGEST = 4_000
LONGEST_CODE = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Licitacion:
    """A public tender. None: the source does not have it."""

    codigo_externo: str
    nombre: str | None = None
    organismo: str | None = None
    region: str | None = None
    rubro: str | None = None
    descripcion: str | None = None
    monto: int | None = None
    """The estimated amount, in pesos."""
    fecha_publicacion: datetime | None = None
    fecha_cierre: datetime | None = None
    url: str | None = None


def text_of(value: object) -> str | None:
    """Return a text without spaces around it. None: it is empty, or no text."""
    # PostgreSQL stores no NUL.
    return (value.replace("\0", "").strip()[:LONGEST] or None) if isinstance(value, str) else None
