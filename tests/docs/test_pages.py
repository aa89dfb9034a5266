"""Every page does what it shows: its blocks are run in their order, in an environment that only the page prepares."""

from __future__ import annotations

import os
import signal
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.docs import environment
from tests.docs.block import Block, blocks, pages
from tests.docs.conftest import SHOP
from tests.docs.left_out import LEFT_OUT, RUN_ELSEWHERE
from tests.docs.page import Run, run_page
from tests.kit.shown import SHOWN

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.postgres import Server

RUNS = {"python", "py", "console", "sh", "sql"}
README = "README.md"
FIRST_JOB = "docs/tutorials/first-job.md"


def _is_run(block: Block) -> bool:
    return block.language in RUNS


WITH_BLOCKS = [page for page in pages() if page not in RUN_ELSEWHERE and any(map(_is_run, blocks(page)))]


@pytest.mark.nightly
@pytest.mark.parametrize("page", [page for page in WITH_BLOCKS if page not in {README, FIRST_JOB}])
def test_the_page_does_what_it_shows(  # noqa: PLR0917 - fixtures are arguments
    page: str,
    variables: dict[str, str],
    postgres: dict[str, str],
    shop: str,
    server: Server,
    template: str,
    tmp_path: Path,
) -> None:
    if not _is_tutorial(page):
        with psycopg.connect(server.url(), autocommit=True) as conn:
            conn.execute(f"CREATE DATABASE {SHOP} TEMPLATE {template} STRATEGY file_copy")
    # Tutorials prepare everything; the other parts assume the database of the first one, and where it is.
    address = {} if _is_tutorial(page) else {"HOLDFAST_DATABASE_URL": f"postgresql://localhost/{SHOP}"}
    with Run(tmp_path, variables | postgres | address, shop) as run:
        run_page(page, run, left_out=_left_out(page))


def test_the_readme_does_what_it_shows(
    variables: dict[str, str], postgres: dict[str, str], shop: str, tmp_path: Path
) -> None:
    with Run(tmp_path, variables | postgres, shop) as run:
        run_page(README, run, left_out=_left_out(README))
        # The job of the event may end a moment after that of the receipt.
        run.wait_for("invoice 7 booked")
        with psycopg.connect(shop, autocommit=True) as conn:
            query = "SELECT kind, status::text, result #>> '{}' FROM holdfast.job_history ORDER BY kind"
            while len(ended := conn.execute(query).fetchall()) < 2:
                conn.execute("SELECT pg_sleep(0.05)")
    assert ended == [
        ("ledger", "completed", "invoice 7 booked"),
        ("receipt.send", "completed", "receipt 7 sent to ada@example.org, attempt 1"),
    ]


@pytest.mark.nightly
def test_the_first_tutorial_takes_few_commands_and_little_time(
    variables: dict[str, str], record_property: Callable[[str, object], None]
) -> None:
    # Not below pytest's folder, which only its owner may enter: the tutorial's server may run as another user.
    with ExitStack() as ends:
        folder = Path(
            ends.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-docs-", ignore_cleanup_errors=True))
        )
        ends.callback(_stop_embedded, folder / "pgdata")
        ran = run_page(FIRST_JOB, ends.enter_context(Run(folder, variables, "")))
    record_property(SHOWN, f"the first tutorial: {ran.commands} commands, {ran.seconds:.1f} seconds")
    assert ran.commands <= 10
    assert ran.seconds < 5 * 60


def _stop_embedded(data: Path) -> None:
    """End the server that the tutorial leaves running."""
    if (pid_file := data / "postmaster.pid").exists():
        os.kill(int(pid_file.read_text().splitlines()[0]), signal.SIGINT)


def _is_tutorial(page: str) -> bool:
    return page == README or page.startswith("docs/tutorials/")


def _left_out(page: str) -> list[Block]:
    return [
        block for block in blocks(page) for named, start in LEFT_OUT if page == named and block.text.startswith(start)
    ]


@pytest.mark.parametrize(("page", "start"), LEFT_OUT)
def test_a_block_that_is_left_out_exists(page: str, start: str) -> None:
    assert sum(block.text.startswith(start) for block in blocks(page)) == 1


@pytest.mark.parametrize("page", RUN_ELSEWHERE)
def test_a_page_that_is_run_elsewhere_is_read_there(page: str) -> None:
    text = (environment.ROOT / RUN_ELSEWHERE[page]).read_text("utf-8")
    assert Path(page).name in text


def test_no_block_is_overlooked() -> None:
    """A block in a language that is not run must not look like code that a reader would run."""
    shown = {"", "text", "json", "yaml", "ini", "toml", "promql", "mermaid"}
    listed = {page: _left_out(page) for page in pages()}
    for block in (block for page in pages() for block in blocks(page)):
        is_listed = block in listed[block.page] or (block.page in RUN_ELSEWHERE and block.language in {"js", "go"})
        assert block.language in RUNS | shown or is_listed, f"{block.place}: {block.language} is not run: give a reason"
        assert block.language != "py" or is_listed, f"{block.place}: write `python`, and let it run"
