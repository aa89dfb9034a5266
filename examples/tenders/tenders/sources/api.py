"""The API of ChileCompra: the tenders of a day in short, and each of them in full."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, StringConstraints, ValidationError

from tenders.money import whole_pesos
from tenders.sources.record import LONGEST_CODE, Licitacion, text_of
from tenders.times import read_local

if TYPE_CHECKING:
    from datetime import date

    import httpx

    from tenders.config import Config

# A day has some hundred tenders. More than this in one answer is not read.
MOST = 5_000


def _or_empty(kind: type, value: object) -> object:
    return value if isinstance(value, kind) else kind()


# A field of another type than expected counts as missing: it is no reason to leave the tender out.
Code = Annotated[str, BeforeValidator(text_of), StringConstraints(max_length=LONGEST_CODE)]
Text = Annotated[str | None, BeforeValidator(text_of)]
Moment = Annotated[datetime | None, BeforeValidator(lambda value: read_local(text_of(value) or ""))]
Amount = Annotated[
    int | None, BeforeValidator(lambda value: whole_pesos(value) if type(value) in {int, float} else None)
]
# The same holds for a part that has fields of its own.
Part = BeforeValidator(partial(_or_empty, dict))
Parts = BeforeValidator(partial(_or_empty, list))


class SourceError(Exception):
    """A source answered something that is not a list of tenders."""


class Buyer(BaseModel):
    organismo: Text = Field(default=None, alias="NombreOrganismo")
    region: Text = Field(default=None, alias="RegionUnidad")


class Dates(BaseModel):
    publicacion: Moment = Field(default=None, alias="FechaPublicacion")
    cierre: Moment = Field(default=None, alias="FechaCierre")


class Item(BaseModel):
    categoria: Text = Field(default=None, alias="Categoria")


class Items(BaseModel):
    listado: Annotated[list[Annotated[Item, Part]], Parts] = Field(default=[], alias="Listado")


class Entry(BaseModel):
    """A tender as the API writes it. In a list it has only its code, its name and its end."""

    codigo: Code = Field(alias="CodigoExterno")
    nombre: Text = Field(default=None, alias="Nombre")
    cierre: Moment = Field(default=None, alias="FechaCierre")
    descripcion: Text = Field(default=None, alias="Descripcion")
    comprador: Annotated[Buyer, Part] = Field(default=Buyer(), alias="Comprador")
    fechas: Annotated[Dates, Part] = Field(default=Dates(), alias="Fechas")
    moneda: Text = Field(default=None, alias="Moneda")
    monto: Amount = Field(default=None, alias="MontoEstimado")
    items: Annotated[Items, Part] = Field(default=Items(), alias="Items")

    def record(self) -> Licitacion:
        return Licitacion(
            codigo_externo=self.codigo,
            nombre=self.nombre,
            organismo=self.comprador.organismo,
            region=self.comprador.region,
            rubro=next((item.categoria for item in self.items.listado if item.categoria), None),
            descripcion=self.descripcion,
            monto=self.monto if self.moneda in {None, "CLP"} else None,
            fecha_publicacion=self.fechas.publicacion,
            fecha_cierre=self.fechas.cierre or self.cierre,
        )


class Answer(BaseModel):
    listado: list[Any] = Field(alias="Listado")


async def fetch_summary(http: httpx.AsyncClient, config: Config, day: date) -> list[Licitacion]:
    """Return the tenders that were published on a day of Santiago, with a few fields each."""
    return await _fetch(http, config, fecha=f"{day:%d%m%Y}")


async def fetch_detail(http: httpx.AsyncClient, config: Config, codigo: str) -> Licitacion | None:
    """Return all that the API has of a tender. None: it does not have it."""
    return next((record for record in await _fetch(http, config, codigo=codigo)), None)


async def _fetch(http: httpx.AsyncClient, config: Config, **query: str) -> list[Licitacion]:
    answer = await http.get(config.api_url, params={**query, "ticket": config.api_ticket})
    answer.raise_for_status()
    try:
        entries = Answer.model_validate_json(answer.content).listado
    except ValidationError:
        raise SourceError("the API answered without a Listado") from None
    return [record for entry in entries[:MOST] if (record := _read(entry)) is not None]


def _read(entry: object) -> Licitacion | None:
    try:
        return Entry.model_validate(entry).record()
    except ValidationError:
        return None
