from __future__ import annotations

import subprocess
import sys

import pytest

import holdfast.ops


def test_the_public_names_are_these() -> None:
    assert set(holdfast.ops.__all__) == {"JwtAccess", "Person", "Role", "end_streams", "operations"}
    assert all(getattr(holdfast.ops, name) for name in holdfast.ops.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        holdfast.ops.nothing  # noqa: B018 - it is to fail


def test_roles_and_tokens_need_no_web_framework() -> None:
    code = (
        "import sys; from holdfast.ops import Person, Role; from holdfast._ops.caller import Token; "
        "print(sorted({'starlette', 'jwt', 'uvicorn', 'prometheus_client'} & set(sys.modules)))"
    )
    done = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
