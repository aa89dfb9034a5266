"""`holdfast serve` in a process of its own, by the real command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SERVING = re.compile(r"Serving on (http://\S+?)/?\s")


class Served(NamedTuple):
    url: str
    pid: int


@contextmanager
def served(url: str, *, before: Callable[[], Any] | None = None, options: tuple[str, ...] = ()) -> Iterator[Served]:
    """Yield where it listens. `before` is called in the new process, before the command."""
    command = [sys.executable, "-m", "holdfast", "serve", "labs.bench.application:app", "--port", "0", *options]
    process = subprocess.Popen(
        [*command, "--database-url", url, "--log-level", "warning"],
        env=os.environ | {"HOLDFAST_DATABASE_URL": url},
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=before,  # noqa: PLW1509 - one thread, and a single call of the system
    )
    try:
        assert process.stdout is not None
        output = process.stdout.readline()
        found = _SERVING.match(output)
        assert found is not None, f"the server did not start: {output!r}"
        yield Served(found[1], process.pid)
    finally:
        process.terminate()
        process.wait(60)
        assert process.stdout is not None
        process.stdout.close()
