"""The programs of how-to/node-and-go.md: each enqueues in its own transaction and reads the result."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.docs.block import blocks
from tools.broker import provide

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = "docs/how-to/node-and-go.md"
INVOICE = 9007199254740993
# Debian's packages of Go put their sources here.
GOCODE = Path("/usr/share/gocode")


@pytest.fixture
def site(tmp_path: Path, database: str) -> Iterator[Path]:
    """A folder with the programs of the page, whose worker runs."""
    for block in blocks(PAGE):
        if block.title:
            (tmp_path / block.title).write_text(block.text)
        if block.language == "sql":
            with psycopg.connect(database, autocommit=True) as conn:
                conn.execute(block.text.encode())
    environment = os.environ | {"HOLDFAST_DATABASE_URL": database}
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", "worker", "shop:app"], cwd=tmp_path, env=environment
    ) as worker:
        try:
            yield tmp_path
        finally:
            worker.terminate()


def _run(site: Path, database: str, *command: str, **variables: str) -> str:
    done = subprocess.run(  # noqa: S603 - a program of the page
        command,
        cwd=site,
        env=os.environ | {"DATABASE_URL": f"{database}?sslmode=disable"} | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _stored(database: str) -> list[tuple[int, int]]:
    """Return the invoice that was written, and the one of the job's result."""
    with psycopg.connect(database) as conn:
        return conn.execute(
            "SELECT invoice.id, (result ->> 'invoice_id')::bigint FROM invoice, holdfast.job_history"
        ).fetchall()


def test_node(site: Path, database: str) -> None:
    tools = Path(sys.executable).parent
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    quiet = ("--no-save", "--no-audit", "--no-fund", "--silent")
    _run(site, database, str(tools / "npm"), "install", *quiet, "pg@8", PATH=path)
    assert _run(site, database, str(tools / "node"), "pay.mjs", PATH=path) == f"node: receipt for {INVOICE}\n"
    assert _stored(database) == [(INVOICE, INVOICE)]


@pytest.mark.nightly
def test_go(site: Path, database: str) -> None:
    go = provide("go", "golang-go golang-github-lib-pq-dev", "install Go and lib/pq")
    variables = {
        "GO111MODULE": "off",
        "GOPATH": str(GOCODE),
        "GOCACHE": str(site / "cache"),
        "GOFLAGS": "-buildvcs=false",
    }
    assert _run(site, database, str(go), "run", "pay.go", **variables) == f"go: receipt for {INVOICE}\n"
    assert _stored(database) == [(INVOICE, INVOICE)]
