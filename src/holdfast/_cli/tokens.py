"""Make, list and revoke the access tokens of the operations API.

A token is shown once, when it is made: the database keeps only a digest of it. With several databases, the tokens are
those of the first.
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING, Any

from holdfast._cli import arguments as args
from holdfast._cli import session, table
from holdfast._cli.session import CommandError
from holdfast._drivers import run_sync
from holdfast._ops.caller import Role, Token, audit_entry
from holdfast._store.access import is_name_free, list_access_tokens, make_access_token, revoke_access_token

if TYPE_CHECKING:
    import psycopg

    from holdfast._store.access import AccessToken

_COLUMNS = ("key", "name", "role", "state", "created", "expires")
_DAYS = {"m": 1 / 1440, "h": 1 / 24, "d": 1.0, "w": 7.0}
_DEFAULT_DAYS = 90.0
_MOST_DAYS = 3650
_LONGEST_NAME = 200
# Prefixes of names from JWTs and of logins at a terminal.
_TAKEN = ("jwt:", "cli:")
_EXPIRES = re.compile(r"([1-9][0-9]{0,5})([mhdw])")
_KEY = re.compile(r"[0-9a-f]{12}")


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="action", required=True)
    make = args.add_action(actions, "make", "make a token, and show it once")
    make.add_argument("name", type=_name, metavar="NAME", help="who it is for, as the audit table will say")
    make.add_argument("--role", choices=[role.value for role in Role], required=True, help="what it may")
    until = make.add_mutually_exclusive_group()
    until.add_argument(
        "--expires", type=_days, default=_DEFAULT_DAYS, metavar="TIME", help="after 30m, 12h, 90d or 8w (default: 90d)"
    )
    until.add_argument("--no-expiry", action="store_true", help="let it be of use until it is revoked")
    args.add_action(actions, "list", "list the tokens, without their secrets")
    revoke = args.add_action(actions, "revoke", "let a token be of no use from now on")
    revoke.add_argument("key", type=_key, metavar="KEY", help="as `list` shows it: the 12 characters after hf_")


def run(arguments: argparse.Namespace) -> None:
    with session.opened(session.listed(arguments)[0]) as conn:
        {"make": _make, "list": _list, "revoke": _revoke}[arguments.action](conn, arguments)


def _name(text: str) -> str:
    if not text.strip() or not text.isprintable() or len(text.encode()) > _LONGEST_NAME:
        raise argparse.ArgumentTypeError(f"a name has 1 to {_LONGEST_NAME} printable bytes")
    if text.lower().startswith(_TAKEN):
        raise argparse.ArgumentTypeError(f"names that begin with {' or '.join(_TAKEN)} are those of others")
    return text


def _days(text: str) -> float:
    found = _EXPIRES.fullmatch(text)
    days = int(found[1]) * _DAYS[found[2]] if found else 0.0
    if not 0 < days <= _MOST_DAYS:
        raise argparse.ArgumentTypeError(f"{text!r}: write 30m, 12h, 90d or 8w, at most {_MOST_DAYS}d")
    return days


def _key(text: str) -> str:
    """Return the key, also if a whole token is given."""
    token = Token.read(text)
    if token is not None:
        return token.key
    if _KEY.fullmatch(text) is None:
        raise argparse.ArgumentTypeError("a key has 12 hexadecimal digits: see `holdfast tokens list`")
    return text


def _make(conn: psycopg.Connection[Any], arguments: argparse.Namespace) -> None:
    token, by = Token.new(), session.person()
    name, role = arguments.name, arguments.role
    days = None if arguments.no_expiry else arguments.expires
    with session.bounded(conn):
        if not run_sync(conn, is_name_free(name)):
            raise CommandError(f"a token of {name} is of use: revoke it first, or choose another name")
        expires = run_sync(conn, make_access_token(token.key, name=name, role=role, digest=token.digest, days=days))
        made = {"name": name, "role": role, "expires_at": expires}
        run_sync(conn, audit_entry(by, "token.make", target=token.key, detail=made))
    if arguments.json:
        table.print_json({"key": token.key, "name": name, "role": role, "expires_at": expires, "token": token.text})
        return
    print(token.text)
    sys.stdout.flush()
    until = "until it is revoked" if expires is None else f"until {table.text(expires)}"
    print(f"{name} is {role} with it, {until}. It is not shown again.", file=sys.stderr)


def _list(conn: psycopg.Connection[Any], arguments: argparse.Namespace) -> None:
    tokens = session.run(conn, list_access_tokens())
    if arguments.json:
        table.print_json([_object(token) for token in tokens])
    elif tokens:
        table.print_table(
            _COLUMNS,
            [(t.key, t.name, t.role, _state(t), t.created_at, t.expires_at or "never") for t in tokens],
        )
    else:
        print("No token has been made: `holdfast tokens make NAME --role viewer`.")


def _object(token: AccessToken) -> dict[str, object]:
    return {
        "key": token.key,
        "name": token.name,
        "role": token.role,
        "state": _state(token),
        "created_at": token.created_at,
        "expires_at": token.expires_at,
        "revoked_at": token.revoked_at,
    }


def _state(token: AccessToken) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "expired" if token.expired else "valid"


def _revoke(conn: psycopg.Connection[Any], arguments: argparse.Namespace) -> None:
    with session.bounded(conn):
        revoked = run_sync(conn, revoke_access_token(arguments.key))
        if revoked:
            run_sync(conn, audit_entry(session.person(), "token.revoke", target=arguments.key))
    if not revoked:
        raise CommandError(f"no token with the key {arguments.key} is of use: see `holdfast tokens list`")
    if arguments.json:
        table.print_json({"key": arguments.key, "state": "revoked"})
    else:
        print(f"{arguments.key}: revoked")
