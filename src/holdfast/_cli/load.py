"""Loads the application given as `module:attribute`, and finds the databases it uses."""

from __future__ import annotations

import difflib
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast._app.app import Holdfast
from holdfast._cli import session
from holdfast._cli.session import CommandError, Database
from holdfast._logs.failure import Failure
from holdfast._model.call import is_of_package, shown_place
from holdfast._model.databases import place_of, split_name

if TYPE_CHECKING:
    import argparse
    from types import ModuleType

    from holdfast._model.settings import Settings

_HELP = "the application, as module:attribute, e.g. shop.jobs:app"


def configure(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    parser.add_argument("app", metavar="APP", help=_HELP, nargs="?" if optional else None)


def load(name: str) -> Holdfast:
    """Import the application and the modules it names. The working directory is searched first."""
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)
    module_name, colon, attribute = name.partition(":")
    if "/" in module_name or module_name.endswith(".py"):
        meant = module_name.removesuffix(".py").strip("./").replace("/", ".")
        raise CommandError(f"{module_name} is a file, not a module: write {meant}:{attribute or 'app'}", status=2)
    if not colon or not module_name or not attribute:
        raise CommandError(f"{name} does not name an application: write module:attribute, e.g. shop.jobs:app", status=2)
    app = _holdfast(_imported(module_name), attribute)
    for module in app.imports:
        _imported(module)
    return app


def databases(app: Holdfast | None) -> list[Database]:
    """Return the databases of the application, otherwise those of the environment.

    An invalid address is refused here, and its text is not repeated.
    """
    if app is not None and app.has_own_database:
        found = session.of_databases("the application", app.databases)
    else:
        found = session.of_environment("give the application one: Holdfast(url)")
    for database in found:
        session.options(database.source, database.url)
    return found


def elsewhere(app: Holdfast, settings: Settings) -> str:
    """Return a warning if the environment names another database than the application, whose address wins."""
    ours = {place_of(url) for url in app.databases.values()} if app.has_own_database else set()
    theirs = {place_of(split_name(text)[1]) for text in settings.database_urls}
    if not ours or not theirs or ours == theirs:
        return ""
    return (
        f"this worker serves {', '.join(sorted(ours))}, the address in the code; {settings.label('database_urls')} "
        f"names {', '.join(sorted(theirs))}, which commands without the application use, such as holdfast migrate"
    )


def choose(arguments: argparse.Namespace, app: Holdfast) -> None:
    """Let the options of the command name one database of the application, unless they name an address."""
    if arguments.database_url is None:
        found = databases(app)
        name = getattr(arguments, "database", None)
        chosen = session.only(found) if name is None else session.named(name, found)
        arguments.database_url, arguments.database = chosen.url, None


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
    place = ""
    if isinstance(error, SyntaxError):
        place = f" at {shown_place(error.filename or '?', error.lineno or 0)}"
    elif lines := [
        shown_place(frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not is_of_package(frame) and "importlib" not in frame.f_code.co_filename
    ]:
        place = f" at {lines[-1]}"
    cure = (
        ": install it, or correct the import" if isinstance(error, ModuleNotFoundError) else ". Correct that line first"
    )
    return CommandError(f"importing {name} failed{place}: {type(error).__name__}: {Failure.of(error).text}{cure}")


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
