"""Two servers at one address, and the ways in which a database comes back as it was at an earlier moment."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

import psycopg

from tools.ports import free_port
from tools.postgres import Server, _unprivileged

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

PROGRAMS = "/usr/lib/postgresql/15/bin"  # with pg_basebackup and pg_dump, which are at hand everywhere


class Way:
    """A primary, `here`, and a server that may take its place, `there`, which is not started yet."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.there = Server(15)
        self.here = Server(15, archive_mode="on", archive_command=f"cp %p {self.there.data.parent}/%f")

    def __enter__(self) -> Self:
        self._stack.callback(self.there.close)
        self._stack.enter_context(self.here)
        _program("chown", "postgres", self.there.data.parent, as_root=True)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        """The address of whichever of the two takes writes."""
        hosts = f"127.0.0.1:{self.here.port},127.0.0.1:{self.there.port}"
        return f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"

    def back_up(self) -> None:
        """Copy the files of the server while it runs."""
        options = ["--checkpoint=fast", "--no-sync", "-d", self.here.url()]
        _program(f"{PROGRAMS}/pg_basebackup", "-D", self.there.data, *options)

    def come_back(self) -> None:
        """Put the database of the backup in the place of the current one."""
        raise NotImplementedError


class BaseBackup(Way):
    """The copy is started as it is, and has the timeline of the lost server."""

    def come_back(self) -> None:
        self.here.crash()
        self.there.start()


class PointInTime(Way):
    """The archived log is replayed up to a moment after the copy was made."""

    def back_up(self) -> None:
        super().back_up()
        with psycopg.connect(self.here.url(), autocommit=True) as conn:
            conn.execute("SELECT pg_create_restore_point('before')")

    def come_back(self) -> None:
        with psycopg.connect(self.here.url(), autocommit=True) as conn:
            conn.execute("SELECT pg_switch_wal()")
        self.here.stop()  # which archives the rest
        with (self.there.data / "postgresql.auto.conf").open("a") as conf:
            conf.write(f"restore_command = 'cp {self.there.data.parent}/%f %p'\n")
            conf.write("recovery_target_name = 'before'\nrecovery_target_action = 'promote'\n")
        (self.there.data / "recovery.signal").touch()
        self.there.start()
        _wait_until_writable(self.there)


class LaggingStandby(Way):
    """A standby that has received nothing since the copy was made is promoted."""

    def back_up(self) -> None:
        super().back_up()
        (self.there.data / "standby.signal").touch()
        self.there.start()

    def come_back(self) -> None:
        self.here.crash()
        with psycopg.connect(self.there.url(), autocommit=True) as conn:
            conn.execute("SELECT pg_promote()")


class Dump(Way):
    """A logical dump is restored into a new cluster."""

    def back_up(self) -> None:
        self._dump = _program(f"{PROGRAMS}/pg_dump", "--no-privileges", self.here.url())

    def come_back(self) -> None:
        self.here.stop()
        self.there._initialize()
        # No worker may find the database before it is complete.
        port, self.there.port = self.there.port, free_port()
        self.there.start()
        _program(f"{PROGRAMS}/psql", "-q", "-v", "ON_ERROR_STOP=1", self.there.url(), given=self._dump)
        with psycopg.connect(self.there.url(), autocommit=True) as conn:
            conn.execute("SELECT holdfast.rebase_subscription(id) FROM holdfast.subscription")
        self.there.stop()
        self.there.port = port
        self.there.start()


def _program(name: str, *arguments: str | Path, given: str | None = None, as_root: bool = False) -> str:
    command: list[str | Path] = [name, *arguments]
    command = command if as_root else _unprivileged(command)
    done = subprocess.run(command, cwd="/", input=given, capture_output=True, text=True, check=True)  # noqa: S603 - PostgreSQL's
    return done.stdout


def _wait_until_writable(server: Server) -> None:
    with psycopg.connect(server.url(), autocommit=True) as conn:
        conn.execute("SELECT pg_promote(true, 30) WHERE pg_is_in_recovery()")
