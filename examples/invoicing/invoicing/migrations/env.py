"""Alembic's environment. A new migration is a new file in versions/, in the words of SQL."""

from __future__ import annotations

from alembic import context
from sqlalchemy import create_engine, text

from holdfast.contrib.alembic import include_name

# Any number: one process at a time migrates.
LOCK = 7_423_117


def run() -> None:
    given = context.config.attributes
    engine = create_engine(given["url"])
    with engine.begin() as conn:
        conn.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
        context.configure(connection=conn, target_metadata=given["metadata"], include_name=include_name)
        context.run_migrations()
    engine.dispose()


run()
