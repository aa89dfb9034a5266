"""Tokens for those who ask the API."""

from __future__ import annotations

import psycopg

from holdfast._drivers import run_sync
from holdfast._ops.caller import Token
from holdfast._store.access import make_access_token


def make_token(url: str, role: str, name: str = "ann") -> str:
    token = Token.new()
    with psycopg.connect(url) as conn:
        run_sync(conn, make_access_token(token.key, name=name, role=role, digest=token.digest, days=1))
    return token.text
