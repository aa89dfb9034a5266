"""The distribution: its name, its version, and one message for every library of an extra that is not installed."""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

DISTRIBUTION = "holdfast-pg"
"""The name on the package index. The name to import is `holdfast`."""


def version() -> str:
    """Return the version that is installed, or `unknown` if the package was copied without its metadata."""
    from importlib import metadata  # a tenth of the time that it takes to import the package

    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "unknown"


def missing(what: str, extra: str, *libraries: str) -> str:
    """Return the message for libraries that `what` needs and that `extra` installs.

    >>> print(missing("NatsSink", "nats", "nats"))
    NatsSink needs nats, which is not installed: pip install 'holdfast-pg[nats]' (in a clone: pip install '.[nats]')
    """
    names = " and ".join(filter(None, (", ".join(libraries[:-1]), libraries[-1])))
    verb = "is" if len(libraries) == 1 else "are"
    command, cloned = f"pip install '{DISTRIBUTION}[{extra}]'", f"pip install '.[{extra}]'"
    return f"{what} needs {names}, which {verb} not installed: {command} (in a clone: {cloned})"


@contextmanager
def needed(what: str, extra: str) -> Iterator[None]:
    """Run imports that `what` needs. Raise ImportError with the extra to install if a library is missing."""
    try:
        yield
    except ModuleNotFoundError as exc:
        library = (exc.name or "").partition(".")[0]
        if library in ("", "holdfast"):
            raise
        raise ImportError(missing(what, extra, library), name=exc.name) from exc


def require(what: str, extra: str, library: str) -> None:
    """Raise ImportError with the extra to install if a library is missing: at once, not at its first use."""
    with needed(what, extra):
        import_module(library)


def require_libpq() -> None:
    """Import psycopg. Raise ImportError with the extra to install if it finds no libpq."""
    try:
        import psycopg  # noqa: F401 - its import fails without libpq
    except ModuleNotFoundError:
        raise
    except ImportError as error:
        raise ImportError(missing("holdfast", "binary", "libpq (PostgreSQL's client library)")) from error
