"""`holdfast dev`: a worker, the dashboard and reload, in real processes."""

from __future__ import annotations

import os
import pty
import signal
import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from holdfast import Holdfast
from holdfast._cli.reload import Watch
from holdfast._store import schema
from tests.kit.commands import PrintingCommand, children, holdfast
from tests.kit.waiting import until_true

JOBS = """\
from datetime import timedelta

from holdfast import Holdfast, Job, Retry

app = Holdfast()


@app.job("receipt.send", retry=Retry(2, base=timedelta(0), jitter=timedelta(0)))
async def send(job: Job[None], n: int) -> str:
    if n == 3:
        raise ConnectionError("the mail server password=hush is \\x1b[31maway")
    return f"first {n}"
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "jobs.py").write_text(JOBS)
    return tmp_path


def dev(database: str, shop: Path, *options: str, **more: Any) -> PrintingCommand:
    return PrintingCommand("dev", "shop.jobs:app", "--port", "0", *options, database=database, cwd=shop, **more)


def enqueue(database: str, n: int) -> None:
    app = Holdfast(database)
    with psycopg.connect(database) as conn:
        app.sync.enqueue(conn, app.declare("receipt.send", dict[str, int], max_attempts=2).new({"n": n}))


def link(running: PrintingCommand) -> str:
    return running.wait_for_line("Dashboard: ").split()[1]


@pytest.mark.nightly
def test_one_terminal(empty: str, shop: Path) -> None:
    jobs = shop / "shop" / "jobs.py"
    with dev(empty, shop, "--migrate") as running, httpx.Client(follow_redirects=True) as browser:
        assert running.wait_for_line("applied ").startswith("applied 0001_")
        address = link(running)
        assert address.startswith("http://127.0.0.1:")
        running.wait_for_line("worker started")
        assert browser.get(address).status_code == 200
        base = address.partition("/login/")[0]
        assert browser.get(f"{base}/api/v1/me").json()["role"] == "developer"
        assert httpx.get(address).status_code == 403, "the link works once"
        assert httpx.get(f"{base}/api/v1/me").status_code == 401

        enqueue(empty, 1)
        line = running.wait_for_line("✓ receipt.send")
        assert "#1 " in line
        assert line.rstrip().endswith("ms")
        enqueue(empty, 3)
        assert "attempt 1 of 2: ConnectionError" in running.wait_for_line("↻ receipt.send")
        assert "jobs.py" in running.wait_for_line('File "')
        assert "attempt 2 of 2" in running.wait_for_line("✗ receipt.send")
        assert "hush" not in running.text()
        assert "\x1b" not in running.text()

        jobs.write_text(JOBS + "def broken(:\n")
        assert "jobs.py line 13: SyntaxError" in running.wait_for_line("importing shop.jobs failed")
        running.wait_for_line("not reloaded. The last version goes on. Waiting for the next change.")
        enqueue(empty, 4)
        running.wait_for_line("✓ receipt.send")
        jobs.write_text(JOBS.replace("first", "second"))
        assert "jobs.py" in running.wait_for_line("changed: ")
        running.wait_for_line("reloaded in")
        running.wait_for_line("worker stopped")
        enqueue(empty, 5)
        running.wait_for_line("✓ receipt.send")
        with psycopg.connect(empty) as conn:
            results = conn.execute("SELECT result FROM holdfast.job_history WHERE status = 'completed' ORDER BY id")
            assert [result for (result,) in results] == ["first 1", "first 4", "second 5"]
        assert browser.get(f"{base}/api/v1/me").status_code == 200, "a reload does not end the session"
        assert httpx.get(address).status_code == 403, "a reload does not renew the link"

        started = children(running.process.pid)
        assert started
        running.signal(signal.SIGINT)
        assert running.ended() == 0
        assert not [pid for pid in started if Path(f"/proc/{pid}").exists()]


@pytest.mark.nightly
def test_without_a_schema_nothing_is_changed_unless_asked_for(empty: str, shop: Path) -> None:
    output = holdfast("dev", "shop.jobs:app", "--port", "0", database=empty, cwd=shop)
    assert output.status == 1
    assert output.err == (
        "holdfast dev: This database has no Holdfast schema: run `holdfast migrate`. "
        "Or let this command do it: --migrate\n"
    )
    with psycopg.connect(empty, autocommit=True) as conn, pytest.raises(Exception, match="no Holdfast schema"):
        schema.check(conn)


@pytest.mark.nightly
@pytest.mark.parametrize(("answer", "migrated"), [("y", True), ("n", False)])
def test_at_a_terminal_it_asks(empty: str, shop: Path, answer: str, migrated: bool) -> None:
    ours, theirs = pty.openpty()
    try:
        with dev(empty, shop, stdin=theirs) as running:
            running.wait_for_line("This database has no Holdfast schema")
            os.write(ours, f"{answer}\n".encode())
            if migrated:
                running.wait_for_line("worker started")
                running.signal(signal.SIGTERM)
            assert running.ended() == (0 if migrated else 1)
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.nightly
def test_an_application_that_cannot_be_imported_is_waited_for(database: str, shop: Path) -> None:
    jobs = shop / "shop" / "jobs.py"
    jobs.write_text("import nothing_like_it\n")
    with dev(database, shop) as running:
        assert "No module named 'nothing_like_it'" in running.wait_for_line("importing shop.jobs failed")
        running.wait_for_line("waiting for a change of a file")
        jobs.write_text(JOBS)
        running.wait_for_line("worker started")
        running.signal(signal.SIGTERM)
        assert running.ended() == 0


@pytest.mark.nightly
def test_its_processes_end_when_it_is_killed(database: str, shop: Path) -> None:
    with dev(database, shop) as running:
        running.wait_for_line("worker started")
        started = children(running.process.pid)
        assert started
        running.signal(signal.SIGKILL)
        running.wait_for_line("the supervisor is gone")
        until_true(lambda: not [pid for pid in started if Path(f"/proc/{pid}").exists()])


@pytest.mark.nightly
def test_a_port_that_is_taken_is_named(database: str, shop: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = str(taken.getsockname()[1])
        output = holdfast("dev", "shop.jobs:app", "--port", port, database=database, cwd=shop)
    assert output.status == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in output.err


@pytest.mark.nightly
def test_a_folder_that_is_not_there_is_named(database: str, shop: Path) -> None:
    output = holdfast("dev", "shop.jobs:app", "--watch", "elsewhere", database=database, cwd=shop)
    assert (output.status, output.err) == (2, "holdfast dev: --watch: there is no folder elsewhere\n")


def test_what_is_watched(tmp_path: Path) -> None:
    def write(name: str, text: str = "") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    first = write("shop/jobs.py")
    watch = Watch([tmp_path])
    assert watch.changed() == []
    write("shop/notes.txt")
    write(".hidden/jobs.py")
    write("shop/__pycache__/jobs.py")
    write("env/pyvenv.cfg")
    write("env/lib/module.py")
    assert watch.changed() == []
    write("shop/jobs.py", "app = 1\n")
    second = write("shop/more.py")
    assert watch.changed() == [first, second]
    first.unlink()
    assert watch.changed() == [first]
    assert watch.changed() == []
