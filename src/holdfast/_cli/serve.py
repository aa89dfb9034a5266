"""Serve the operations API and the dashboard until stopped.

APP is needed only where handlers are to be run by hand (run-once). SIGINT and SIGTERM stop gently.
"""

from __future__ import annotations

import json
import os
import signal
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast._cli import arguments as args
from holdfast._cli import load, log_options, session
from holdfast._cli.session import CommandError, Database, require
from holdfast._engine import process
from holdfast._logs.log import Log
from holdfast._model.databases import Databases
from holdfast._model.errors import HoldfastError
from holdfast._model.settings import Settings
from holdfast._store.access import list_access_tokens

if TYPE_CHECKING:
    import argparse
    import socket

    from starlette.applications import Starlette

    from holdfast._app.app import Holdfast
    from holdfast.ops import JwtAccess

log = Log(__name__)

_MOST_CONNECTIONS = 100
_SHORTEST, _LONGEST = 0.1, 60.0
_LARGEST_FILE = 262_144


def configure(parser: argparse.ArgumentParser) -> None:
    load.configure(parser, optional=True)
    session.configure(parser)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this machine)")
    parser.add_argument(
        "--port", type=args.whole(0, args.LAST_PORT, "a port"), default=8080, help="default: 8080; 0: any that is free"
    )
    parser.add_argument(
        "--connections",
        type=args.whole(1, _MOST_CONNECTIONS),
        default=4,
        metavar="N",
        help="to the database, at most (default: 4)",
    )
    parser.add_argument(
        "--timeout",
        type=args.number(_SHORTEST, _LONGEST, "seconds"),
        default=2.0,
        metavar="SECONDS",
        help="of a question to the database (default: 2)",
    )
    parser.add_argument("--jwt-issuer", metavar="URL", help="also let in whom this issuer's tokens name")
    parser.add_argument("--jwt-audience", metavar="NAME", help="whom these tokens must be made for")
    parser.add_argument("--jwt-keys", metavar="WHERE", help="the issuer's key set: an https address, or a file")
    parser.add_argument("--jwt-role-claim", metavar="NAME", default="role", help="default: role")
    parser.add_argument(
        "--redact-field",
        action="append",
        default=[],
        metavar="NAME",
        help="hide this field of payloads too; may be repeated",
    )
    parser.add_argument(
        "--secret-file", metavar="FILE", help="what signs sessions, the same for all processes behind one address"
    )
    parser.add_argument("--public-metrics", action="store_true", help="serve /metrics without authentication")
    parser.add_argument(
        "--behind-proxy",
        action="store_true",
        help="believe the X-Forwarded headers of a proxy on this machine, or at FORWARDED_ALLOW_IPS",
    )
    log_options.configure(parser)


def run(arguments: argparse.Namespace) -> None:
    require("ops", "starlette", "uvicorn", "psycopg_pool", "jwt")
    app = load.load(arguments.app) if arguments.app else None
    settings = Settings.load(os.environ)
    databases = _databases(arguments, app)
    application = _application(arguments, app, databases)
    log_options.start_log(arguments, settings)
    with args.Address(arguments.host, arguments.port).bind() as listening:
        _warn(arguments)
        print(f"Serving on {shown(listening)}", flush=True)
        _print_login(arguments, databases[0])
        session.run_async(_serve(application, listening, arguments))


def _databases(arguments: argparse.Namespace, app: Holdfast | None) -> list[Database]:
    """Return the databases: from the options, otherwise those of the application or the environment."""
    if arguments.database_url or app is None:
        found = session.listed(arguments)
    else:
        found = load.databases(app)
        if arguments.database is not None:
            found = [session.named(arguments.database, found)]
    for database in found:
        session.options(database.source, database.url)
    return found


def _application(arguments: argparse.Namespace, app: Holdfast | None, databases: list[Database]) -> Starlette:
    from holdfast.ops import operations

    several = len(databases) > 1
    draining = [database.name for database in databases if database.draining] if several else []
    named = {database.name: database.url for database in databases}
    return operations(
        app,
        url=Databases(named, draining=draining) if several else databases[0].url,
        jwt=_jwt(arguments),
        redact_fields=arguments.redact_field,
        connections=arguments.connections,
        timeout=timedelta(seconds=arguments.timeout),
        secret=_secret(arguments),
        public_metrics=arguments.public_metrics,
    )


def _secret(arguments: argparse.Namespace) -> str | None:
    if arguments.secret_file is None:
        return None
    from holdfast._ops.access import LEAST_SECRET

    try:
        secret = _read("--secret-file", Path(arguments.secret_file)).decode().strip()
    except UnicodeDecodeError:
        # Do not replace invalid bytes: the result would be easier to guess.
        raise CommandError(f"--secret-file: {arguments.secret_file} is no text", status=2) from None
    if len(secret) < LEAST_SECRET:
        raise CommandError(f"--secret-file: {arguments.secret_file} has less than {LEAST_SECRET} characters", status=2)
    return secret


def _jwt(arguments: argparse.Namespace) -> JwtAccess | None:
    from holdfast.ops import JwtAccess

    given = (arguments.jwt_issuer, arguments.jwt_audience, arguments.jwt_keys)
    if not any(given):
        return None
    if not all(given):
        raise CommandError("--jwt-issuer, --jwt-audience and --jwt-keys belong together: give all three", status=2)
    issuer, audience, where = given
    keys: dict[str, Any] = {"jwks_url": where} if "://" in where else {"keys": _keys(where)}
    try:
        return JwtAccess(issuer=issuer, audience=audience, role_claim=arguments.jwt_role_claim, **keys)
    except ValueError as error:
        raise CommandError(f"--jwt-keys: {error}", status=2) from error


def _keys(path: str) -> Any:
    try:
        return json.loads(_read("--jwt-keys", Path(path)))
    except ValueError as error:
        raise CommandError(f"--jwt-keys: {path} is no JSON", status=2) from error


def _read(option: str, path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST_FILE)
    except OSError as error:
        raise CommandError(f"{option}: cannot read {path}: {error.strerror}: give a file", status=2) from error


def shown(listening: socket.socket) -> str:
    """Return the address that a browser opens."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def _warn(arguments: argparse.Namespace) -> None:
    try:
        local = ip_address(arguments.host).is_loopback
    except ValueError:
        local = arguments.host == "localhost"
    if not local and not arguments.behind_proxy:
        log.warning("served without TLS to other machines: put a proxy that speaks TLS before it")


def _print_login(arguments: argparse.Namespace, first: Database) -> None:
    """Print a hint if no access token exists. If the database is unreachable, warn and start anyway."""
    try:
        with session.opened(first) as conn:
            none = not session.run(conn, list_access_tokens(1))
    except (CommandError, HoldfastError) as error:
        log.warning("%s", error)
        return
    if none and not arguments.jwt_issuer:
        print("Nobody has an access token yet. Make one: holdfast tokens make NAME --role developer", flush=True)


async def _serve(application: Starlette, listening: socket.socket, arguments: argparse.Namespace) -> None:
    from holdfast._cli.server import make_server

    server = make_server(application, behind_proxy=arguments.behind_proxy)
    for number in process.SIGNALS:  # uvicorn raises them again after it ended, which is no failure here
        signal.signal(number, server.handle_exit)
    await server.serve(sockets=[listening])
