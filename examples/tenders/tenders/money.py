"""Chilean pesos: whole numbers, since a peso has no cents, written with points between the thousands."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal

# More than the budget of the whole state.
MOST = 10**15
_AMOUNT = re.compile(r"\$?\s*(\d{1,3}(?:\.\d{3})+|\d+)(?:,(\d{1,4}))?")


def pesos(amount: int) -> str:
    """Return an amount as people write it.

    >>> pesos(1234567), pesos(-500)
    ('$1.234.567', '-$500')
    """
    return f"{'-' if amount < 0 else ''}${abs(amount):,}".replace(",", ".")


def read_pesos(text: str) -> int | None:
    """Return the amount in a text such as `$ 1.234.567`. None: there is none.

    >>> read_pesos("$ 1.234.567"), read_pesos("980000,50"), read_pesos("por definir")
    (1234567, 980001, None)
    """
    found = _AMOUNT.fullmatch(text.strip())
    if found is None:
        return None
    return whole_pesos(Decimal(f"{found[1].replace('.', '')}.{found[2] or 0}"))


def whole_pesos(amount: Decimal | float) -> int | None:
    """Return a number of JSON as pesos, half a peso rounded up. None: it is no amount.

    >>> whole_pesos(1234567.5), whole_pesos(0), whole_pesos(0.3), whole_pesos(-3)
    (1234568, None, None, None)
    """
    exact = Decimal(str(amount))
    # The API writes 0 where the amount is not known.
    if not exact.is_finite() or not 0 < exact <= MOST:
        return None
    return int(exact.quantize(Decimal(1), rounding=ROUND_HALF_UP)) or None
