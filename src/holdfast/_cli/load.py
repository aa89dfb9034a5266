"""Loads the application given as `module:attribute`, and finds the databases it uses."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
import traceback
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast._app.app import Holdfast
from holdfast._cli import session
from holdfast._cli.session import CommandError
from holdfast._logs.failure import Failure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    import psycopg

    from holdfast._model.settings import Settings

_HELP = "the application, as module:attribute, e.g. shop.jobs:app"
_VARIABLES = "HOLDFAST_DATABASE_URL or DATABASE_URL"


def configure(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    parser.add_argument("app", metavar="APP", help=_HELP, nargs="?" if optional else None)


def load(name: str) -> Holdfast:
    """Import the application and the modules it names. The working directory is searched first."""
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise CommandError(f"{name} does not name an application: write module:attribute, e.g. shop.jobs:app", status=2)
    if "/" in module_name or module_name.endswith(".py"):
        meant = module_name.removesuffix(".py").strip("./").replace("/", ".")
        raise CommandError(f"{module_name} is a file, not a module: write {meant}:{attribute}", status=2)
    app = _holdfast(_imported(module_name), attribute)
    for module in app.imports:
        _imported(module)
    return app


def addresses(app: Holdfast | None, settings: Settings) -> dict[str, str]:
    """Return the databases by source: the application's own, otherwise those of the environment.

    An invalid address is refused here, and its text is not repeated.
    """
    if app is not None and app.url:
        named = {"the application": app.url}
    else:
        source = settings.label("database_urls")
        several = len(settings.database_urls) > 1
        named = {
            f"{source}, address {place}" if several else source: url
            for place, url in enumerate(settings.database_urls, start=1)
        }
    if not named:
        raise CommandError(f"no database: set {_VARIABLES}, or give the application one: Holdfast(url)", status=2)
    for source, url in named.items():
        session.options(source, url)
    return named


@contextmanager
def connected(source: str, url: str) -> Iterator[psycopg.Connection[Any]]:
    """Connect to a database that `source` names."""
    try:
        conn = session.connect(argparse.Namespace(database_url=url))
    except CommandError as stop:
        raise CommandError(str(stop).replace("--database-url", source)) from stop
    with conn:
        yield conn


def _imported(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _failed(name, error) from error
        missing = error.name
        where = f" in {missing.rpartition('.')[0]}" if "." in missing else f" in {Path.cwd()} or on the Python path"
        raise CommandError(
            f"there is no module {missing}{where}: run this where the application's code is, or set PYTHONPATH"
        ) from error
    except (Exception, SystemExit) as error:
        raise _failed(name, error) from error


def _failed(name: str, error: BaseException) -> CommandError:
    """Return an error that names the failing line of the application, instead of a traceback."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and frame.filename != __file__
    ]
    place = ""
    if isinstance(error, SyntaxError):
        place = f" at {_shown(error.filename)} line {error.lineno}"
    elif frames:
        place = f" at {_shown(frames[-1].filename)} line {frames[-1].lineno}"
    cure = (
        ": install it, or correct the import" if isinstance(error, ModuleNotFoundError) else ". Correct that line first"
    )
    return CommandError(f"importing {name} failed{place}: {type(error).__name__}: {Failure.of(error).text}{cure}")


def _shown(filename: str | None) -> str:
    path = Path(filename or "?")
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def _holdfast(module: ModuleType, attribute: str) -> Holdfast:
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise CommandError(f"{module.__name__} has no {attribute}{_suggestion(module, attribute)}")
        found = getattr(found, part)
    if not isinstance(found, Holdfast):
        given = f"{module.__name__}:{attribute} is a {type(found).__name__}, not a Holdfast"
        raise CommandError(f"{given}{_suggestion(module, attribute)}")
    return found


def _suggestion(module: ModuleType, attribute: str) -> str:
    apps = [name for name, value in vars(module).items() if isinstance(value, Holdfast)]
    if not apps:
        return ", and no other Holdfast: it is made by app = Holdfast()"
    close = difflib.get_close_matches(attribute, apps, n=1, cutoff=0) or apps
    return f": did you mean {module.__name__}:{close[0]}?"
