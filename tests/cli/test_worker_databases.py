"""`holdfast worker` with a file of databases: every process follows it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import psycopg

from tests.kit.commands import Running, holdfast
from tests.kit.databases import clone
from tests.kit.workers import enqueue, job

if TYPE_CHECKING:
    from pathlib import Path

    from tools.postgres import Server


def test_each_process_follows_the_file(
    database: str, server: Server, template: str, shop: Path, tmp_path: Path
) -> None:
    path = tmp_path / "databases.toml"
    path.write_text(f'eu = "{database}"\n')
    variables = {"HOLDFAST_DATABASES_FILE": str(path)}
    with clone(server, template) as other, psycopg.connect(other, autocommit=True) as conn:
        with Running("worker", "shop:app", "--processes", "2", database=None, cwd=shop, **variables) as worker:
            worker.wait_for_line("worker started", 2)
            path.write_text(f'eu = "{database}"\nus = "{other}"\n')
            added = worker.wait_for_line("a database is added", 2)
            enqueue(conn, job("quick"))
            assert worker.wait_for_line("quick")[0]["database"] == "us"
            path.write_text(f'eu = "{database}"\n')
            worker.wait_for_line("a database was removed", 2)
            worker.signal(signal.SIGTERM)
            assert worker.ended() == 0
        assert {line["database"] for line in added} == {"us"}
        rows: list[Any] = conn.execute("SELECT stop_reason FROM holdfast.worker").fetchall()
        assert rows == [("stopped",), ("stopped",)]


def test_a_file_that_cannot_be_read_at_the_start(shop: Path, tmp_path: Path) -> None:
    path = tmp_path / "databases.toml"
    path.write_text('eu = "postgresql://me:hush@there')
    output = holdfast("worker", "shop:app", cwd=shop, HOLDFAST_DATABASES_FILE=str(path))
    assert output.status != 0
    assert f"{path}: not TOML: " in output.err
    assert "hush" not in output.err
