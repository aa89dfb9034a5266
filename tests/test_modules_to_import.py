"""`Holdfast(imports=[…])`: modules whose handlers are registered when a worker, a command or a drain begins."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import Holdfast, HoldfastError
from holdfast._cli.load import load
from holdfast._cli.session import CommandError
from holdfast.testing import Testing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

APP = """
from holdfast import Holdfast
app = Holdfast({url!r}, imports=["late_shop.mail", "late_shop.books"])
"""
MAIL = """
from late_shop.main import app

@app.job("mail")
async def mail(to: str) -> str:
    return to
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    folder = tmp_path / "late_shop"
    folder.mkdir()
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)

    def write(name: str, text: str) -> None:
        (folder / f"{name}.py").write_text(text)

    yield write
    for name in [name for name in sys.modules if name.partition(".")[0] == "late_shop"]:
        del sys.modules[name]


@pytest.fixture
def made(write: Callable[[str, str], None]) -> Callable[[str], Holdfast]:
    """Import the application; only its own module is imported by that."""

    def made(url: str = "postgresql://127.0.0.1:1/nowhere") -> Holdfast:
        write("main", APP.format(url=url))
        write("mail", MAIL)
        write("books", MAIL.replace("mail", "books"))
        importlib.invalidate_caches()
        app: Holdfast = importlib.import_module("late_shop.main").app
        assert not app.kinds
        return app

    return made


def test_a_worker_imports_them(made: Callable[[], Holdfast]) -> None:
    app = made()
    app.worker()
    assert sorted(app.kinds) == ["books", "mail"]
    app.worker()


def test_a_command_imports_them(made: Callable[[], Holdfast]) -> None:
    made()
    assert sorted(load("late_shop.main:app").kinds) == ["books", "mail"]


def test_a_drain_imports_them(made: Callable[[str], Holdfast], database: str) -> None:
    app = made(database)
    with psycopg.connect(database) as conn:
        kit = Testing(app, conn)
        conn.execute("SELECT holdfast.enqueue('mail', '{\"to\": \"a@b.c\"}')")
        [ran] = kit.sync.drain()
        kit.sync.assert_enqueued(app.kinds["mail"].new("a@b.c"))
    assert (ran.kind, ran.result) == ("mail", "a@b.c")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import nothing_of_this_name", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        (None, "ModuleNotFoundError: No module named 'late_shop.books'"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named_with_the_reason(
    made: Callable[[], Holdfast], write: Callable[[str, str], None], tmp_path: Path, text: str | None, reason: str
) -> None:
    app = made()
    if text is None:
        (tmp_path / "late_shop" / "books.py").unlink()
    else:
        write("books", text)
    with pytest.raises(HoldfastError) as refused:
        app.worker()
    assert str(refused.value) == f"imports: late_shop.books cannot be imported: {reason}"
    with pytest.raises(CommandError, match=r"late_shop\.books|nothing_of_this_name"):
        load("late_shop.main:app")


@pytest.mark.parametrize(
    ("given", "output"),
    [("shop.jobs", "got str"), (7, "got int"), (["shop/jobs.py"], "got 'shop/jobs.py'"), ([7], "got 7")],
)
def test_what_is_no_list_of_modules_is_refused(given: Any, output: str) -> None:
    with pytest.raises((TypeError, ValueError), match=rf'imports: expected a list of modules, .*"shop.jobs".*{output}'):
        Holdfast(imports=given)


def test_without_imports_nothing_is_imported() -> None:
    app = Holdfast("postgresql://127.0.0.1:1/nowhere")
    assert app.imports == ()
    app.import_modules()
