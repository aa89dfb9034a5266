"""A real `alembic revision --autogenerate` beside our schema."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import psycopg

if TYPE_CHECKING:
    from pathlib import Path

INI = """
[alembic]
script_location = migrations
path_separator = os
"""
ENV = """
import os

from alembic import context
from sqlalchemy import Column, Integer, MetaData, Table, create_engine, make_url

from holdfast.contrib.alembic import include_name

metadata = MetaData()
Table("orders", metadata, Column("id", Integer, primary_key=True))
Table("orders", metadata, Column("id", Integer, primary_key=True), schema="shop")

engine = create_engine(make_url(os.environ["DATABASE_URL"]).set(drivername="postgresql+psycopg"))
with engine.connect() as connection:
    context.configure(connection=connection, target_metadata=metadata, include_schemas=True, include_name=include_name)
    with context.begin_transaction():
        context.run_migrations()
"""
MAKO = """
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}

def upgrade():
    ${upgrades if upgrades else "pass"}
"""

SCHEMAS = ", include_schemas=True"
HELPER = ", include_name=include_name"


def revision(folder: Path, database: str, *without: str) -> str:
    """Return what alembic would do to the database, without some of the options."""
    migrations = folder / "migrations"
    (migrations / "versions").mkdir(parents=True)
    (folder / "alembic.ini").write_text(INI)
    (migrations / "env.py").write_text(re.sub("|".join(without) or "$^", "", ENV))
    (migrations / "script.py.mako").write_text(MAKO)
    done = subprocess.run(
        [sys.executable, "-m", "alembic", "revision", "--autogenerate", "-m", "orders"],
        cwd=folder,
        env={"DATABASE_URL": database},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    [written] = (migrations / "versions").glob("*.py")
    return written.read_text()


def test_in_its_own_schema_alembic_sees_nothing_of_ours(tmp_path: Path, database: str) -> None:
    text = revision(tmp_path, database, SCHEMAS, HELPER)
    assert "create_table('orders'" in text
    assert "drop" not in text
    assert "holdfast" not in text


def test_over_all_schemas_the_helper_hides_ours(tmp_path: Path, database: str) -> None:
    with psycopg.connect(database) as conn:
        conn.execute("CREATE SCHEMA shop CREATE TABLE shop.gone (id int)")
    text = revision(tmp_path / "with", database)
    assert "create_table('orders'" in text
    assert "drop_table('gone', schema='shop')" in text
    assert "holdfast" not in text
    assert "schema='holdfast'" in revision(tmp_path / "without", database, HELPER)
