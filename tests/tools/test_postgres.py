from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any, Literal

import psycopg
import pytest

from tools.postgres import Server, provide

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def spare(server_version: int) -> Server:
    return Server(server_version)


def test_the_server_is_of_the_version_asked_for(server: Server, server_version: int) -> None:
    with psycopg.connect(server.url()) as conn:
        assert conn.info.server_version // 10_000 == server_version


def test_settings_reach_the_server(server_version: int) -> None:
    with Server(server_version, fsync="on", work_mem="7MB") as server, psycopg.connect(server.url()) as conn:
        shown = [conn.execute(f"SHOW {name}").fetchone() for name in ("fsync", "work_mem", "full_page_writes")]
    assert shown == [("on",), ("7MB",), ("off",)]


def test_each_has_an_identifier_of_its_own(server: Server, spare: Server) -> None:
    identifiers = set()
    with spare:
        for running in (server, spare):
            with psycopg.connect(running.url()) as conn:
                identifiers.add(conn.execute("SELECT system_identifier FROM pg_control_system()").fetchone())
    assert len(identifiers) == 2


def test_a_second_server_initializes_nothing(spare: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[str] = []
    run = subprocess.run

    def noted(command: list[str], **options: Any) -> Any:
        commands.extend(map(str, command))
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", noted)
    with spare, psycopg.connect(spare.url()):
        assert not [word for word in commands if "initdb" in word]


@pytest.mark.parametrize("how", ["fast", "immediate", "crash"])
def test_what_was_committed_is_there_after_a_restart(spare: Server, how: Literal["fast", "immediate", "crash"]) -> None:
    with spare as server:
        with psycopg.connect(server.url(), autocommit=True) as conn:
            conn.execute("CREATE TABLE kept AS SELECT 1 AS n")
            server.crash() if how == "crash" else server.stop(how)
            with pytest.raises(psycopg.OperationalError):
                conn.execute("SELECT 1")
        server.start()
        with psycopg.connect(server.url()) as conn:
            assert conn.execute("SELECT n FROM kept").fetchall() == [(1,)]


def test_nothing_is_left_behind(spare: Server) -> None:
    with spare as server:
        url, data = server.url(), server.data
    assert not data.exists()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)


def test_another_server_on_the_port_is_noticed(server: Server, spare: Server) -> None:
    spare.port = server.port
    with pytest.raises(RuntimeError, match="answers, but serves"), spare:
        pass


def test_a_folder_without_the_version_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOLDFAST_POSTGRES_BIN", f"{tmp_path}/{{version}}")
    with pytest.raises(RuntimeError, match="no initdb and postgres 17"):
        provide(17)
