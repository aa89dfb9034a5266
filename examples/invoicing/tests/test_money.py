from __future__ import annotations

from decimal import Decimal

import pytest

from examples.invoicing.invoicing.config import Config, ConfigError, Smtp
from examples.invoicing.invoicing.money import Money, taxes


def test_amounts_are_rounded_to_cents_half_up() -> None:
    assert Money.of(Decimal("12.345"), "EUR") == Money(1235, "EUR")
    assert Money(333, "EUR") * Decimal("0.5") == Money(167, "EUR")
    assert str(Money(123450, "USD")) == "1,234.50 USD"


def test_currencies_are_not_mixed() -> None:
    with pytest.raises(ValueError, match="EUR and USD"):
        _ = Money(1, "EUR") + Money(1, "USD")


def test_a_tax_is_rounded_once_for_each_rate() -> None:
    three_lines = [(Decimal(19), Money(33, "EUR"))] * 3
    [tax] = taxes(three_lines)
    assert (tax.net.cents, tax.tax.cents) == (99, 19), "and not three times 6 cents"


def test_taxes_are_by_rate() -> None:
    lines = [(Decimal(19), Money(100, "EUR")), (Decimal(7), Money(200, "EUR")), (Decimal(19), Money(300, "EUR"))]
    assert [(int(tax.rate), tax.net.cents, tax.tax.cents) for tax in taxes(lines)] == [(7, 200, 14), (19, 400, 76)]


def test_missing_variables_are_named_together() -> None:
    with pytest.raises(ConfigError, match="set SMTP_URL, SESSION_SECRET, WORKER_API_SERVICE_TOKEN"):
        Config.read({"DATABASE_URL": "postgresql://localhost/invoicing"})
    with pytest.raises(ConfigError, match="set DATABASE_URL"):
        Config.read({})


def test_secrets_are_not_shown() -> None:
    config = Config.read(
        {
            "DATABASE_URL": "postgresql://u:hidden1@localhost/invoicing",
            "SMTP_URL": "smtps://u:hidden%202@mail.example.org",
            "SESSION_SECRET": "hidden3" * 8,
            "WORKER_API_SERVICE_TOKEN": "hidden4",
        }
    )
    assert config.smtp == Smtp("mail.example.org", 465, tls=True, user="u", password="hidden 2")  # noqa: S106 - made up
    assert "hidden" not in repr(config)
