"""Brings a database up to date: Holdfast's schema, and then the tables of invoicing by Alembic."""

from __future__ import annotations

from pathlib import Path

import psycopg
from alembic import command
from alembic.config import Config as Alembic
from sqlalchemy import make_url

from holdfast import migrate as migrate_holdfast

from .tables import Base


def migrate(database_url: str) -> None:
    """Any number of processes may call it at once."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        migrate_holdfast(conn)
    command.upgrade(settings(database_url), "head")


def settings(database_url: str) -> Alembic:
    found = Alembic()
    found.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    found.attributes["url"] = make_url(database_url).set(drivername="postgresql+psycopg")
    found.attributes["metadata"] = Base.metadata
    return found
