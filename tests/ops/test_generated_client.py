"""A client that a common generator makes of the OpenAPI document works as it stands."""

from __future__ import annotations

import json
import shutil
import subprocess
import venv
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast._ops.openapi import document
from holdfast._ops.routes import ROUTES
from holdfast.ops import Role, operations
from tests.kit.access import PATIENT
from tests.ops.serving import Served

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.kit.shop import Shop

pytestmark = pytest.mark.nightly

GENERATOR = "openapi-python-client==0.29.1"
SCRIPT = Path(__file__).with_name("generated_client.py")


def run(*command: str | Path, folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)  # noqa: S603 - ours
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_generated_client_runs_two_dozen_calls(tmp_path: Path, shop: Shop, tokens: Mapping[Role, str]) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / "bin"
    run(programs / "pip", "install", "--quiet", GENERATOR, folder=tmp_path)
    (tmp_path / "openapi.json").write_text(json.dumps(document(ROUTES)))
    generate = ("generate", "--path", "openapi.json", "--meta", "none", "--output-path", "generated")
    said = run(programs / "openapi-python-client", *generate, folder=tmp_path)
    assert "unsupported" not in said.lower(), said
    shutil.copy(SCRIPT, tmp_path / "script.py")
    with psycopg.connect(shop.app.url) as conn:
        row = conn.execute("SELECT id FROM holdfast.job_failed LIMIT 1").fetchone()
    assert row is not None
    with Served(operations(shop.app, timeout=PATIENT)) as served:
        given = (served.url, tokens[Role.DEVELOPER], str(shop.waiting), str(row[0]))
        run(programs / "python", "script.py", *given, folder=tmp_path)
