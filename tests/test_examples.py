"""The examples run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_staged_processing(database: str, connect: Callable[..., psycopg.Connection[Any]]) -> None:
    ran = subprocess.run(  # noqa: S603 - an example of this very checkout
        [sys.executable, EXAMPLES / "staged.py"],
        env=os.environ | {"HOLDFAST_DATABASE_URL": database},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    receipt = ran.stdout.removesuffix("\n")
    assert re.fullmatch(r"120 charged under holdfast:[0-9a-f]{32}:[0-9]{16}:1", receipt), ran.stdout
    assert connect().execute("SELECT receipt FROM invoice").fetchall() == [(receipt,)]
    assert connect().execute("SELECT status::text, attempt FROM holdfast.job_history").fetchall() == [("completed", 1)]
