"""A PostgreSQL with the tables of the example, and the scripted model."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import psycopg
import pytest

from examples.agent.support.__main__ import migrate
from examples.agent.support.scripted import ScriptedModel
from tests.kit.databases import administered, clone
from tools.postgres import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

TEMPLATE = "support_template"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    with Server(int(os.environ.get("HOLDFAST_TEST_POSTGRES", "15"))) as server, administered(server):
        with psycopg.connect(server.url(), autocommit=True) as conn:
            conn.execute(f"CREATE DATABASE {TEMPLATE}")
        migrate(server.url(TEMPLATE))
        yield server


@pytest.fixture
def database(postgres: Server) -> Iterator[str]:
    with clone(postgres, TEMPLATE) as url:
        yield url


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedModel]:
    model = ScriptedModel()
    with model.serving() as address:
        monkeypatch.setenv("OPENAI_BASE_URL", address)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        yield model
