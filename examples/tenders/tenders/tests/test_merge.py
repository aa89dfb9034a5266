from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tenders.sources.merge import fuller, merged
from tenders.sources.record import Licitacion

CIERRE = datetime(2026, 4, 20, 18, 0, tzinfo=UTC)
FETCHED = Licitacion(
    codigo_externo="1-1-LE26",
    nombre="Adquisición de equipos médicos para el hospital",
    organismo="Hospital",
    rubro="Salud",
    fecha_cierre=CIERRE,
)
SCRAPED = Licitacion(
    codigo_externo="1-1-LE26",
    nombre="Adquisición de equipos médicos para el hos…",
    organismo="Hospital de Valdivia",
    region="Los Ríos",
    monto=1_234_567,
    fecha_cierre=datetime(2026, 4, 21, tzinfo=UTC),
    url="/licitacion/1-1-LE26",
)


def test_each_field_is_that_of_the_fuller_record() -> None:
    assert merged(FETCHED, SCRAPED) == Licitacion(
        codigo_externo="1-1-LE26",
        nombre=FETCHED.nombre,  # that of the page was cut
        organismo=SCRAPED.organismo,  # longer
        region=SCRAPED.region,  # only there
        rubro=FETCHED.rubro,
        monto=SCRAPED.monto,
        fecha_cierre=CIERRE,  # both have one: the API's
        url=SCRAPED.url,
    )


def test_one_record_is_enough() -> None:
    assert merged(FETCHED, None) is FETCHED
    assert merged(None, SCRAPED) is SCRAPED
    with pytest.raises(ValueError, match="a record expected"):
        merged(None, None)


@pytest.mark.parametrize(
    ("fetched", "scraped", "taken"),
    [
        (None, None, None),
        ("", "x", "x"),
        ("abc", "xyz", "abc"),
        ("abc…", "ab", "ab"),
        ("abc...", "abcdef…", "abcdef…"),
        (7, 9, 7),
    ],
)
def test_fuller(fetched: object, scraped: object, taken: object) -> None:
    assert fuller(fetched, scraped) == taken
