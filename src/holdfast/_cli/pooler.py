"""Whether a pooler answers for the server, whether it shares sessions, and whether notifications arrive through it."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from holdfast._engine.link import sever

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from holdfast._model.settings import Settings

Verdict: TypeAlias = Literal["ok", "note", "wrong"]
"""`wrong`: a worker could not run so."""
CheckResult: TypeAlias = tuple[Verdict, str, str]
"""A verdict, the subject, and the text."""
Pooling: TypeAlias = Literal["none", "session", "transaction"]
"""`session`: each client has a session of its own. `transaction`: two clients can get the same one."""

_CHANNEL = "holdfast_check"
# A notification takes about a millisecond; after this time it is lost.
_LISTEN_SECONDS = 5.0
# A pooler prefers the session that was used last. Another client may take it in between.
_LOOKS = 5


def pooling(conn: psycopg.Connection[Any], other: psycopg.Connection[Any]) -> Pooling:
    """Return how a pooler shares sessions between two connections that are not in a transaction."""
    if _session(conn) == conn.info.backend_pid:
        return "none"
    shared = any(_session(conn) == _session(other) for _ in range(_LOOKS))
    return "transaction" if shared else "session"


def _session(conn: psycopg.Connection[Any]) -> int | None:
    row = conn.execute("SELECT pg_catalog.pg_backend_pid()", prepare=False).fetchone()
    return None if row is None else int(row[0])


def listening(
    conn: psycopg.Connection[Any], other: psycopg.Connection[Any], how: Pooling, settings: Settings
) -> CheckResult:
    """Send a notification on one connection, and wait for it on the other."""
    if not settings.listen:
        return "note", "listen", f"off ({settings.label('listen')}): idle workers find jobs by polling"
    if how == "transaction":
        # LISTEN would stay behind in a session of the pooler's.
        return "wrong", "listen", _no_notification("a pooler shares the server's sessions between its clients")
    conn.execute(f"LISTEN {_CHANNEL}")
    other.execute(f"NOTIFY {_CHANNEL}")
    arrived = list(conn.notifies(timeout=_LISTEN_SECONDS, stop_after=1))
    conn.execute(f"UNLISTEN {_CHANNEL}")
    if not arrived:
        return "wrong", "listen", _no_notification("a notification that was sent did not arrive")
    return "ok", "listen", "works: idle workers are woken"


def _no_notification(why: str) -> str:
    return f"{why}. Give workers a direct address, or set HOLDFAST_LISTEN=false and let them poll."


@contextmanager
def severed_after(conn: psycopg.Connection[Any], seconds: float) -> Iterator[None]:
    """Sever the connection if the block takes longer: a pooler may never give it a session."""
    timer = threading.Timer(seconds, sever, [conn])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
