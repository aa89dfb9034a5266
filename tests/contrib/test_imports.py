from __future__ import annotations

import subprocess
import sys

from holdfast import _cli as cli

FRAMEWORKS = (
    "alembic",
    "asgiref",
    "asyncpg",
    "click",
    "django",
    "fastapi",
    "flask",
    "pydantic_ai",
    "sentry_sdk",
    "sqlalchemy",
    "starlette",
)


def test_without_a_kit_no_framework_is_imported() -> None:
    code = (
        "import sys, holdfast._cli, holdfast.contrib; holdfast._cli._parser(); "
        f"print(sorted(set({FRAMEWORKS}) & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout == "[]\n"


def test_the_commands_that_take_an_application_are_known() -> None:
    """A framework's own command names it for them."""
    [commands] = [action for action in cli._parser()._actions if action.dest == "command"]
    assert commands.choices is not None
    taking = [
        name
        for name, parser in dict(commands.choices).items()
        if any(action.dest in ("app", "apps") for action in parser._actions)
    ]
    assert tuple(taking) == cli._OF_AN_APPLICATION
