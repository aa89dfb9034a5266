"""Makes a mistake for real, and returns the answer."""

from __future__ import annotations

import ast
import asyncio
import gc
import shlex
import warnings
from typing import TYPE_CHECKING, Any

import psycopg

from tests.kit.commands import holdfast
from tests.mistakes.mistake import PRELUDE

if TYPE_CHECKING:
    from pathlib import Path


def python_answer(code: str, url: str) -> str:
    """Run the code in an event loop, after the prelude; return the error, or else the warning, that it causes."""
    return asyncio.run(_python_answer(code, url))


async def _python_answer(code: str, url: str) -> str:
    # Not `async with`: code that leaves a connection in any state must not hide the answer.
    conn = await psycopg.AsyncConnection.connect(url)
    sync_conn = psycopg.connect(url)
    scope: dict[str, Any] = {"__name__": "shop", "conn": conn, "sync_conn": sync_conn}
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            exec(compile(PRELUDE.replace("postgresql://…", url), "shop.py", "exec"), scope)  # noqa: S102 - the table's
            # The answers name the lines of this code.
            answer = await _error(compile(code, "shop.py", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), scope)
            scope.clear()
            # A coroutine that was not awaited warns here, and not in the next test.
            gc.collect()
        return answer or "\n".join(f"{warning.category.__name__}: {warning.message}" for warning in seen) or "accepted"
    finally:
        await conn.close()
        sync_conn.close()


async def _error(code: Any, scope: dict[str, Any]) -> str:
    try:
        waiting = eval(code, scope)  # noqa: S307 - the table's
        if waiting is not None:
            await waiting
    except Exception as exc:  # noqa: BLE001 - any answer is an answer
        return f"{type(exc).__name__}: {exc}"
    return ""


def command_answer(line: str, folder: Path, database: str) -> tuple[int, str]:
    """Run the command line in the folder; return its exit status, and all that it printed."""
    words = shlex.split(line.replace("$SERVER", database.rpartition("/")[0]))
    variables = {}
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        variables[name] = value
    output = holdfast(*words[1:], database=database, cwd=folder, **variables)
    return output.status, (output.err or output.out).strip()
