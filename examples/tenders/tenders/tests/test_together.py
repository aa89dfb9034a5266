"""`python -m tenders` starts only what the environment does not name."""

from __future__ import annotations

import os
from contextlib import ExitStack

import pytest

from tenders.local.together import start_sources, start_stores

NAMED = {
    "DATABASE_URL": "postgresql://db/tenders",
    "ARCHIVE_BUCKET": "s3://acme/tenders",
    "CHILECOMPRA_API_URL": "https://api.example.org",
    "CHILECOMPRA_PAGE_URL": "https://page.example.org",
    "EXPO_URL": "https://push.example.org",
}
MISSING = ("HOLDFAST_DATABASE_URL", "HOLDFAST_ARCHIVE_BUCKET", "CHILECOMPRA_TICKET")


@pytest.fixture(autouse=True)
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in MISSING:
        monkeypatch.delenv(name, raising=False)
    for name, value in NAMED.items():
        monkeypatch.setenv(name, value)


def test_nothing_is_started_if_all_is_named() -> None:
    before = dict(os.environ)
    with ExitStack() as ends:
        assert start_stores(ends) is False
        assert start_sources(ends, 0) == []
    assert dict(os.environ) == before


def test_one_address_that_is_missing_is_that_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPO_URL", "")
    monkeypatch.setenv("CHILECOMPRA_TICKET", "ours")
    with ExitStack() as ends:
        [(_, listening)] = start_sources(ends, 0)
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    assert os.environ["EXPO_URL"] == f"{address}/push"
    assert os.environ["CHILECOMPRA_API_URL"] == NAMED["CHILECOMPRA_API_URL"]
    assert os.environ["CHILECOMPRA_TICKET"] == "ours"
