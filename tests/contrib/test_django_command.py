"""`manage.py holdfast`: the real command line, with the site's application and database."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from django.core.management import call_command

from tests.kit.commands import Running
from tests.kit.databases import clone
from tests.kit.django_config import connected
from tests.kit.ledger import Ledger
from tests.sites.serving import EXAMPLES, libpq

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.postgres import Server

ADDRESS = "HOLDFAST_DATABASE_URL"


@pytest.fixture(autouse=True)
def no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command writes the address into the environment; the test's end takes it away."""
    monkeypatch.setenv(ADDRESS, "")


@pytest.fixture
def orders(server: Server) -> Iterator[str]:
    """A database without our schema, under another alias."""
    with clone(server, "template0") as database, connected(orders=database):
        yield database


def status(*arguments: str) -> int:
    """Run the command, and return what it exits with."""
    try:
        call_command("holdfast", *arguments)
    except SystemExit as end:
        return int(str(end.code))
    return 0


def test_the_application_is_the_sites(django_database: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("check", "--json") == 0
    tasks = [f"tests.contrib.book.tasks.{name}" for name in ("add", "decline", "fail_twice", "greet", "noted")]
    assert json.loads(capsys.readouterr().out)["application"]["kinds"] == ["book.print", "book.ship", *tasks]


def test_it_answers_as_holdfast_does(django_database: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("jobs", "list", "--json") == 0
    assert capsys.readouterr().out == "[]\n"
    assert status("jobs", "cancel", "7") == 1
    assert capsys.readouterr().out == "7: does not exist, see `holdfast jobs list`: only a live job can be cancelled\n"
    assert status("jobs", "dance") == 2
    assert "there is no action dance: see `holdfast jobs --help`" in capsys.readouterr().err
    assert status() == 2


def test_the_database_is_the_sites_unless_another_is_named(
    django_database: str, orders: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status("migrate", "--check") == 0
    assert status("--database", "orders", "migrate", "--check") == 1
    assert "no Holdfast schema" in capsys.readouterr().err
    monkeypatch.setenv(ADDRESS, orders)
    assert status("migrate", "--check") == 1, "an address in the environment wins over the settings"
    assert status("--database", "default", "migrate", "--check") == 0, "and what is written wins over both"


def test_a_worker_of_several_processes_is_of_the_site(database: str) -> None:
    running = Running(
        "worker",
        "--processes",
        "2",
        program=["manage.py", "holdfast"],
        database=database,
        cwd=EXAMPLES / "django_site",
        **libpq(database),
    )
    with running, Ledger(database) as ledger:
        running.wait_for_line("worker started", times=2)
        assert ledger.rows("SELECT kinds FROM holdfast.worker") == [(["receipt.send"],)] * 2
        running.signal(signal.SIGTERM)
        assert running.ended() == 0


LEAVE = """
import threading
from asgiref.sync import sync_to_async
from holdfast._engine.process import Process
from holdfast._model.settings import Settings

place = Process(Settings.load({}))

async def main():
    work = sync_to_async({work})()
    await work

place.run(main())
place.leave(0)
"""


def left(work: str) -> str:
    program = [sys.executable, "-c", LEAVE.replace("{work}", work)]
    return subprocess.run(program, capture_output=True, text=True, check=True).stderr  # noqa: S603 - ours


def test_the_thread_of_sync_to_async_is_not_left_running() -> None:
    assert left("int") == ""


def test_a_thread_that_a_handler_left_is_named() -> None:
    assert "ended although handlers left something running" in left(
        "lambda: threading.Thread(target=threading.Event().wait, name='mine').start()"
    )
