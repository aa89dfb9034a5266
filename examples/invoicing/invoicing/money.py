"""Amounts in cents, with their currency, and the taxes on them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

# All of them have a hundredth.
Currency: TypeAlias = Literal["EUR", "USD", "CHF", "GBP"]

_HUNDRED = Decimal(100)


@dataclass(frozen=True)
class Money:
    cents: int
    currency: str

    @classmethod
    def of(cls, amount: Decimal, currency: str) -> Money:
        """Return an amount such as 12.50, rounded to cents if it has more digits."""
        return cls(_whole(amount * _HUNDRED), currency)

    @property
    def amount(self) -> Decimal:
        return Decimal(self.cents).scaleb(-2)

    def __add__(self, other: Money) -> Money:
        if other.currency != self.currency:
            raise ValueError(f"{self.currency} and {other.currency} cannot be added")
        return Money(self.cents + other.cents, self.currency)

    def __mul__(self, quantity: Decimal) -> Money:
        return Money(_whole(self.cents * quantity), self.currency)

    def percent(self, rate: Decimal) -> Money:
        return Money(_whole(self.cents * rate / _HUNDRED), self.currency)

    def __str__(self) -> str:
        return f"{self.amount:,.2f} {self.currency}"


class Tax(NamedTuple):
    """The lines of an invoice that have the same rate, taken together."""

    rate: Decimal
    net: Money
    tax: Money


def taxes(lines: Iterable[tuple[Decimal, Money]]) -> list[Tax]:
    """Return the taxes on lines of (rate, net), by rate. A tax is rounded once for each rate, not for each line."""
    nets: defaultdict[Decimal, list[Money]] = defaultdict(list)
    for rate, net in lines:
        nets[rate].append(net)
    sums = {rate: total(those) for rate, those in sorted(nets.items())}
    return [Tax(rate, net, net.percent(rate)) for rate, net in sums.items()]


def total(amounts: Iterable[Money]) -> Money:
    """Return the sum of at least one amount."""
    first, *others = amounts
    for amount in others:
        first += amount
    return first


def _whole(value: Decimal) -> int:
    return int(value.quantize(Decimal(1), ROUND_HALF_UP))
