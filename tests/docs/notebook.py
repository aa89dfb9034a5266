"""Runs in the clean environment: executes the Python blocks of a page one after the other, in one namespace.

A line of JSON with the code comes in, a line with what it printed and its error goes out. Blocks with `await` run in an
event loop that goes on between the blocks, as in `python -m asyncio`; others run without one.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import json
import sys
import threading
import traceback
from typing import Any


def main() -> None:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    sys.path.insert(0, "")
    names: dict[str, Any] = {"__name__": "page"}
    answers = sys.stdout
    for line in sys.stdin:
        asked = json.loads(line)
        printed = io.StringIO()
        error = None
        try:
            flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            code = compile(asked["code"], asked["place"], "exec", flags=flags, dont_inherit=True)
            with contextlib.redirect_stdout(printed):
                if code.co_flags & inspect.CO_COROUTINE:
                    asyncio.run_coroutine_threadsafe(eval(code, names), loop).result()  # noqa: S307 - our own page
                else:
                    exec(code, names)  # noqa: S102 - our own page
        except BaseException:  # noqa: BLE001 - the test shows it
            error = traceback.format_exc()
        answers.write(json.dumps({"printed": printed.getvalue(), "error": error}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
