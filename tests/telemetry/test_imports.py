from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import sys
import holdfast
import holdfast._cli.worker
from holdfast.telemetry import instrument

app = holdfast.Holdfast("postgresql://")
instrument(app)
extras = ("opentelemetry", "prometheus_client", "starlette", "uvicorn")
found = [name for name in sys.modules if name.partition(".")[0] in extras]
assert not found, found
"""


def test_what_is_not_used_is_not_imported() -> None:
    subprocess.run([sys.executable, "-c", CODE], check=True, timeout=60)  # noqa: S603 - ourselves


@pytest.mark.parametrize("module", ["prometheus", "opentelemetry"])
def test_each_extra_is_asked_for_by_one_module(module: str) -> None:
    """The libraries of another extra are not needed."""
    others = {"prometheus": ["opentelemetry"], "opentelemetry": ["prometheus_client"]}
    code = f"import sys\nsys.modules.update(dict.fromkeys({others[module]!r}))\nimport holdfast._telemetry.{module}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)  # noqa: S603 - ourselves
