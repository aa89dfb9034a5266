"""A sample site in a process of its own, visited over HTTP, and the commands that are given beside it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.error import HTTPError, URLError
from urllib.request import HTTPCookieProcessor, Request, build_opener

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tests.kit.commands import PATIENCE, Output, environment

if TYPE_CHECKING:
    from collections.abc import Sequence

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
SENT = "sent, attempt 1"

_VARIABLES = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD", "dbname": "PGDATABASE"}


class Site:
    """Serves while its block runs. The command says where."""

    def __init__(self, name: str, *command: str, database: str, **variables: str) -> None:
        self._folder = EXAMPLES / name
        self._environment = environment(database, **libpq(database), **variables)
        self._command = [sys.executable, *command]
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._open = build_opener(HTTPCookieProcessor()).open
        self._url = ""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(  # noqa: S603 - the site under test
            self._command,
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self._url = self._wait_for_line(r"(http://127\.0\.0\.1:[1-9]\d*)")
            self._reached()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join(PATIENCE)
            assert self._process.stdout is not None
            self._process.stdout.close()

    def post(self, path: str, **form: str) -> tuple[int, Any]:
        """Return the status, and what was answered, read if it is JSON."""
        headers = {"Content-Type": "application/json"}
        return self.request(Request(self._url + path, json.dumps(form).encode(), headers, method="POST"))  # noqa: S310

    def get(self, path: str) -> tuple[int, Any]:
        return self.request(Request(self._url + path))  # noqa: S310 - our own server

    def request(self, request: Request) -> tuple[int, Any]:
        try:
            with self._open(request, timeout=PATIENCE) as answer:
                status, output = answer.status, answer.read().decode()
        except HTTPError as error:
            with error:
                status, output = error.code, error.read().decode()
        return status, json.loads(output) if output.startswith("{") else output

    def until_sent(self, order: int) -> None:
        """Wait until a worker has done what the order asks for."""
        deadline = time.monotonic() + PATIENCE
        while self.get(f"/orders/{order}") != (200, {"receipt": SENT}):
            assert time.monotonic() < deadline, self._lines
            time.sleep(0.02)

    def _wait_for_line(self, pattern: str) -> str:
        deadline = time.monotonic() + PATIENCE
        with self._changed:
            while not (found := re.search(pattern, "".join(self._lines))):
                assert self._process.poll() is None, self._lines
                assert self._changed.wait(deadline - time.monotonic()), self._lines
        return found[1]

    def _reached(self) -> None:
        """Some servers say where they serve a moment before they do."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self.get("/orders/0")
            except URLError:
                assert self._process.poll() is None, self._lines
                assert time.monotonic() < deadline, self._lines
                time.sleep(0.02)
            else:
                return

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self._lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()


def command(name: str, *arguments: str, database: str, **variables: str) -> Output:
    """Run a command where the site's code is, to its end."""
    done = subprocess.run(  # noqa: S603 - the command under test
        [sys.executable, *arguments],
        cwd=EXAMPLES / name,
        env=environment(database, **libpq(database), **variables),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return Output(done.returncode, done.stdout, done.stderr)


def rows(database: str, query: str) -> Sequence[tuple[Any, ...]]:
    with psycopg.connect(database) as conn:
        return conn.execute(query.encode()).fetchall()


def pending(database: str) -> list[int]:
    """Return the orders that a waiting job names."""
    return [order for (order,) in rows(database, "SELECT (payload ->> 'order_id')::int FROM holdfast.job ORDER BY id")]


def libpq(database: str) -> dict[str, str]:
    """Return the address as the variables that Django's settings are made of."""
    return {_VARIABLES[name]: str(value) for name, value in conninfo_to_dict(database).items() if name in _VARIABLES}
