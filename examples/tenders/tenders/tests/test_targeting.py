from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tenders.sources.record import Licitacion
from tenders.targeting import Preferences, matches

TENDER = Licitacion(
    codigo_externo="1-1-LE26",
    nombre="Reparación de caminos rurales",
    descripcion="Incluye señalética.",
    region="Región de Los Ríos",
    rubro="Construcción",
    monto=50_000_000,
)


@pytest.mark.parametrize(
    ("preferences", "wanted"),
    [
        ({}, True),
        ({"enabled": False}, False),
        ({"regiones": ["los rios"]}, True),
        ({"regiones": ["Metropolitana", "Los Ríos"]}, True),
        ({"regiones": ["Metropolitana"]}, False),
        ({"rubros": ["construccion"]}, True),
        ({"rubros": ["Salud"]}, False),
        ({"palabras": ["CAMINOS"]}, True),
        ({"palabras": ["senaletica"]}, True),
        ({"palabras": ["hospital"]}, False),
        ({"monto_minimo": 50_000_000}, True),
        ({"monto_minimo": 50_000_001}, False),
        ({"regiones": ["Los Ríos"], "rubros": ["Salud"]}, False),
    ],
)
def test_every_preference_must_match(preferences: dict[str, Any], wanted: bool) -> None:
    assert matches(Preferences(**preferences), TENDER) is wanted


def test_a_tender_of_which_little_is_known() -> None:
    bare = Licitacion(codigo_externo="2-2-LE26")
    assert matches(Preferences(), bare)
    assert matches(Preferences(monto_minimo=10), bare)
    assert not matches(Preferences(regiones=["Los Ríos"]), bare)
    assert not matches(Preferences(palabras=["caminos"]), bare)


@pytest.mark.parametrize(
    "wrong",
    [{"regiones": ["x"] * 17}, {"palabras": [" "]}, {"rubros": ["x" * 81]}, {"monto_minimo": -1}, {"color": "red"}],
)
def test_preferences_are_bounded(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Preferences(**wrong)
