"""Creates and updates the tables: Holdfast's, and then those of migrations/, in the order of their numbers.

`python -m tenders.migrate`, at every deployment. Files that were applied are skipped.
"""

from __future__ import annotations

import os
from importlib.resources import files

import psycopg

import holdfast
from tenders.config import Config

# Two processes that migrate at the same time take turns.
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('tenders.migrate', 0))"
TABLE = "CREATE TABLE IF NOT EXISTS tenders_migration (name text PRIMARY KEY, applied_at timestamptz DEFAULT now())"
MARK = "INSERT INTO tenders_migration (name) VALUES (%s) ON CONFLICT DO NOTHING"


def migrate(url: str) -> list[str]:
    """Apply what is missing, and return the names of the files."""
    applied: list[str] = []
    with psycopg.connect(url, autocommit=True) as conn:
        holdfast.migrate(conn)
        scripts = sorted(
            (file for file in files("tenders").joinpath("migrations").iterdir() if file.name.endswith(".sql")),
            key=lambda file: file.name,
        )
        for script in scripts:
            with conn.transaction():
                conn.execute(_LOCK)
                conn.execute(TABLE)
                if conn.execute(MARK, [script.name]).rowcount:
                    conn.execute(script.read_bytes())
                    applied.append(script.name)
    return applied


def main() -> None:
    config = Config.load(os.environ)
    config.required("database_url")
    for name in migrate(config.database_url):
        print(f"applied {name}")


if __name__ == "__main__":
    main()
