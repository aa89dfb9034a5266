"""The commands of invoicing.

    python -m invoicing                        everything on this machine: what the environment does not name is started
    python -m invoicing migrate                bring the database up to date
    python -m invoicing invite ada@example.org --role owner    print the path of a link that signs a person in once

`migrate` and `invite` need DATABASE_URL and nothing else.
In production, beside `migrate`: `uvicorn --factory invoicing.web:create`, `holdfast worker invoicing.jobs:app`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from . import local
from .config import ConfigError, database_of
from .migrate import migrate
from .services import open_sessions
from .users import Role, invite

if TYPE_CHECKING:
    from collections.abc import Generator

# Each server, and the variable that names another one to use in its place.
SERVERS = {
    "INVOICE_STORE_ENDPOINT": local.object_store,  # the slowest first
    "DATABASE_URL": local.postgres,
    "SMTP_URL": local.mail_catcher,
}
# A request that waits for a PDF does not hold up a stop.
UVICORN = ("--timeout-graceful-shutdown", "5", "--log-level", "warning")
STOP_SECONDS = 45.0


def main() -> int:
    as_written = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m invoicing", description=__doc__, formatter_class=as_written)
    parser.add_argument("--port", type=int, default=8000, help="of the API (default: 8000)")
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("migrate")
    inviting = commands.add_parser("invite")
    inviting.add_argument("email")
    inviting.add_argument("--role", type=Role, choices=list(Role), default=Role.OWNER)
    arguments = parser.parse_args()
    try:
        return _do(arguments)
    except ConfigError as error:
        parser.error(str(error))


def _do(arguments: argparse.Namespace) -> int:
    match arguments.command:
        case "migrate":
            migrate(database_of(os.environ))
        case "invite":
            print(asyncio.run(_invite(arguments.email, arguments.role)))
        case _:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, _interrupt)
            return _run(arguments.port)
    return 0


def _run(port: int) -> int:
    """Run everything until Ctrl-C, and leave nothing behind."""
    with ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="invoicing-", ignore_cleanup_errors=True)))
        try:
            local.check_free(port)
            print("Starting …", flush=True)
            for name, server in SERVERS.items():
                if not os.environ.get(name):
                    os.environ |= ends.enter_context(server(folder))
            _set_defaults(port)
            migrate(database_of(os.environ))
            browser, curl = (asyncio.run(_invite("owner@example.org", Role.OWNER)) for _ in range(2))
            address = f"http://127.0.0.1:{port}"
            web = ["uvicorn", "--factory", "invoicing.web:create", "--port", str(port), *UVICORN]
            local.wait_until_answers(f"{address}/me", ends.enter_context(_child(web)))
            local.wait_until_answers(os.environ["INVOICE_STORE_ENDPOINT"])
            ends.enter_context(_child(["holdfast", "worker", "invoicing.jobs:app"]))
            _introduce(address, browser, curl, folder)
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)  # until one of them ends
        except KeyboardInterrupt:
            print("Stopping …", flush=True)
            return 0
        except OSError as error:  # a port that is taken, a server that does not start
            print(f"invoicing: {error}", file=sys.stderr)
            return 1
    print("A process of invoicing ended by itself: see above.", file=sys.stderr)
    return 1


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _set_defaults(port: int) -> None:
    """Set what the environment does not."""
    for name, value in {
        "SESSION_SECRET": secrets.token_urlsafe(32),
        "WORKER_API_SERVICE_TOKEN": secrets.token_urlsafe(32),
        "WORKER_API_BASE_URL": f"http://127.0.0.1:{port}",
    }.items():
        os.environ.setdefault(name, value)


def _introduce(address: str, browser: str, curl: str, folder: Path) -> None:
    lines = [
        f"Invoicing runs at {address}",
        "",
        f"  Browser    {address}{browser}",
        "             Open this link to see the jobs. It signs you in as the owner, and works once.",
        f"  curl       {address}{curl}",
        "             A second link, for the commands of the README.",
        f"  API        {address}/docs",
    ]
    if (folder / "mail").exists():
        lines.append(f"  Mail       {folder / 'mail'}")
    if (folder / "postgres").exists():
        lines.append(f"  Database   {os.environ['DATABASE_URL']}")
    lines += ["", "Press Ctrl-C to stop. The servers that were started for this are removed, with their data."]
    print("\n".join(["", *lines, ""]), flush=True)


async def _invite(email: str, role: Role) -> str:
    async with open_sessions(database_of(os.environ)) as sessions, sessions.begin() as session:
        return await invite(session, email, role)


@contextmanager
def _child(command: list[str]) -> Generator[subprocess.Popen[bytes], None, None]:
    """Run a module. Ctrl-C does not reach its session: this process stops the others, in their order."""
    started = subprocess.Popen([sys.executable, "-m", *command], start_new_session=True)  # noqa: S603 - our own
    try:
        yield started
    finally:
        started.terminate()
        try:
            started.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


if __name__ == "__main__":
    sys.exit(main())
