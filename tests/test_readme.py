"""The README's code does what the README says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import psycopg

    Connect = Callable[..., psycopg.Connection[Any]]

README = Path(__file__).parent.parent / "README.md"
LONGEST = 200


def test_it_is_short() -> None:
    assert len(README.read_text().splitlines()) <= LONGEST


def test_the_example_runs(database: str, connect: Connect, tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    connect().execute("CREATE TABLE invoice AS SELECT 7 AS id, NULL::timestamptz AS paid_at")
    script = tmp_path / "shop.py"
    script.write_text(code.replace("postgresql://localhost/shop", database))
    ran = subprocess.run(  # noqa: S603 - the README of this very checkout
        [sys.executable, script], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "receipt 7 sent to ada@example.org, attempt 1\n"
    ended = connect().execute("SELECT kind, status::text, result #>> '{}' FROM holdfast.job_history ORDER BY kind")
    assert ended.fetchall() == [
        ("ledger", "completed", "invoice 7 booked"),
        ("receipt.send", "completed", "receipt 7 sent to ada@example.org, attempt 1"),
    ]


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target
