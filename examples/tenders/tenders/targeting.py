"""Which installations want which tender. The same rule decides when a delivery is made and again when it is sent."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from tenders.money import MOST

if TYPE_CHECKING:
    from tenders.sources.record import Licitacion

Word = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=80)]


class Preferences(BaseModel):
    """The tenders of which the owner of an installation wants to know. An empty list stands for everything."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = True
    regiones: list[Word] = Field(default=[], max_length=16)
    rubros: list[Word] = Field(default=[], max_length=50)
    palabras: list[Word] = Field(default=[], max_length=20)
    """Words of which one must be in the name or the description."""
    monto_minimo: int | None = Field(default=None, ge=0, le=MOST)


def matches(preferences: Preferences, licitacion: Licitacion) -> bool:
    """Return whether the owner wants to know of this tender. An amount that is not known is large enough."""
    if not preferences.enabled:
        return False
    text = f"{licitacion.nombre or ''} {licitacion.descripcion or ''}"
    return (
        _one_of(preferences.regiones, licitacion.region)
        and _one_of(preferences.rubros, licitacion.rubro)
        and _one_of(preferences.palabras, text)
        and (
            preferences.monto_minimo is None or licitacion.monto is None or licitacion.monto >= preferences.monto_minimo
        )
    )


def _one_of(wanted: list[Word], found: str | None) -> bool:
    plain = folded(found or "")
    return not wanted or any(folded(each) in plain for each in wanted)


def folded(text: str) -> str:
    """Return a text without accents and capitals: people write them as they like.

    >>> folded("Región de Ñuble")
    'region de nuble'
    """
    apart = unicodedata.normalize("NFKD", text)
    return "".join(each for each in apart if not unicodedata.combining(each)).casefold()
