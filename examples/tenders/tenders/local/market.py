"""Invents tenders, in the shapes in which the API and the page of ChileCompra have theirs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from html import escape
from typing import Any

from tenders.money import pesos
from tenders.times import SANTIAGO, from_local, today, written

THINGS = (
    "Adquisición de equipos médicos para el hospital comunal y sus postas rurales",
    "Reparación de caminos rurales",
    "Servicio de alimentación escolar para los establecimientos de la comuna",
    "Arriendo de maquinaria pesada",
    "Desarrollo y mantención de un sistema de gestión documental en la nube",
    "Suministro de medicamentos",
)
RUBROS = ("Salud", "Construcción", "Alimentación", "Maquinaria", "Informática", "Salud")
PLACES = (
    ("Municipalidad de Ñuñoa", "Región Metropolitana de Santiago"),
    ("Hospital de Valdivia", "Región de Los Ríos"),
    ("Gobierno Regional de Tarapacá", "Región de Tarapacá"),
)
_CUT = 40


@dataclass(frozen=True)
class Tender:
    """The tender number `number`, published at a moment."""

    number: int
    published: datetime

    @property
    def codigo(self) -> str:
        return f"{1000 + self.number % 700}-{self.number}-LE26"

    @property
    def nombre(self) -> str:
        return f"{THINGS[self.number % len(THINGS)]} (n.º {self.number})"

    @property
    def monto(self) -> int:
        return 850_000 + self.number * 1_234_567 % 98_000_000

    @property
    def cierre(self) -> datetime:
        day = today(self.published) + timedelta(days=10 + self.number % 20)
        return from_local(datetime.combine(day, time(15)))

    @property
    def place(self) -> tuple[str, str]:
        return PLACES[self.number % len(PLACES)]


class Market:
    """All tenders that were published."""

    def __init__(self, tenders: int = 0) -> None:
        self.tenders: list[Tender] = []
        self.publish(tenders)

    def publish(self, count: int) -> list[str]:
        """Publish more tenders, and return their codes."""
        first, now = len(self.tenders) + 1, datetime.now(UTC)
        new = [Tender(number, now) for number in range(first, first + count)]
        self.tenders += new
        return [tender.codigo for tender in new]

    def listed(self, fecha: str) -> list[dict[str, Any]]:
        """Return the tenders of a day of Santiago, as the API lists them."""
        return [_short(tender) for tender in self.tenders if f"{today(tender.published):%d%m%Y}" == fecha]

    def detailed(self, codigo: str) -> list[dict[str, Any]]:
        """Return a tender as the API describes it, or nothing. Of each third one it does not have the amount."""
        return [_full(tender) for tender in self.tenders if tender.codigo == codigo]

    def page(self, count: int = 50) -> str:
        """Return the page with the newest tenders. It cuts their names, and has no categories."""
        articles = "\n".join(_article(tender) for tender in self.tenders[::-1][:count])
        return f"<!doctype html><title>Licitaciones</title><main><section id=resultados>{articles}</section></main>"


def _short(tender: Tender) -> dict[str, Any]:
    return {
        "CodigoExterno": tender.codigo,
        "Nombre": tender.nombre,
        "CodigoEstado": 5,
        "FechaCierre": _local(tender.cierre),
    }


def _full(tender: Tender) -> dict[str, Any]:
    organismo, region = tender.place
    return _short(tender) | {
        "Descripcion": f"{tender.nombre}. Las bases están en el portal.",
        "Estado": "Publicada",
        "Comprador": {"NombreOrganismo": organismo, "RegionUnidad": region},
        "Fechas": {"FechaPublicacion": _local(tender.published), "FechaCierre": _local(tender.cierre)},
        "Moneda": "CLP",
        "MontoEstimado": 0 if tender.number % 3 == 0 else float(tender.monto),
        "Items": {"Cantidad": 1, "Listado": [{"Categoria": RUBROS[tender.number % len(RUBROS)]}]},
    }


def _local(at: datetime) -> str:
    return f"{at.astimezone(SANTIAGO):%Y-%m-%dT%H:%M:%S}"


def _article(tender: Tender) -> str:
    organismo, region = tender.place
    name = tender.nombre if len(tender.nombre) <= _CUT else f"{tender.nombre[:_CUT]}…"
    fields = {
        "codigo": tender.codigo,
        "organismo": organismo,
        "region": region,
        "monto": pesos(tender.monto).replace("$", "$ "),
        "cierre": written(tender.cierre),
    }
    spans = "".join(f"<span class={field}>{escape(text)}</span> " for field, text in fields.items())
    link = f"/licitacion/{tender.codigo}"
    return f'<article class=licitacion><h3><a href="{link}">{escape(name)}</a></h3><p>{spans}</p></article>'
