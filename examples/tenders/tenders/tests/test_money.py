from __future__ import annotations

import pytest

from tenders.money import pesos, read_pesos, whole_pesos


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "$0"), (999, "$999"), (1_000, "$1.000"), (1_234_567, "$1.234.567"), (98_000_000_000, "$98.000.000.000")],
)
def test_pesos_are_written_with_points_and_without_cents(amount: int, text: str) -> None:
    assert pesos(amount) == text
    assert amount == 0 or read_pesos(text) == amount


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("$ 1.234.567", 1_234_567),
        ("1234567", 1_234_567),
        ("$980.000,00", 980_000),
        ("$980.000,50", 980_001),
        ("$980.000,49", 980_000),
        ("1.23", None),
        ("1,234,567", None),
        ("US$ 1.000", None),
        ("por definir", None),
        ("", None),
        ("$0", None),
        ("$ 0,30", None),
        ("$ 0,50", 1),
        ("9" * 40, None),
    ],
)
def test_pesos_are_read(text: str, amount: int | None) -> None:
    assert read_pesos(text) == amount


@pytest.mark.parametrize(
    ("number", "amount"), [(1.5, 2), (2.5, 3), (0.1 + 0.2, None), (1e300, None), (float("nan"), None), (-5, None)]
)
def test_a_number_of_json_becomes_whole_pesos(number: float, amount: int | None) -> None:
    assert whole_pesos(number) == amount
