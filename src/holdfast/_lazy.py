"""Lazy imports: a public module imports a name when it is first used."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast._distribution import needed, require_libpq

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy(module: str, homes: Mapping[str, str], *, extra: str = "", libpq: bool = False) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module whose names are defined in other modules, which may need an extra.

    `extra`: the one to name if a library is missing. Defaults to none: the library's own error is raised.
    `libpq`: whether psycopg is imported first, to name the extra that has libpq. Defaults to False.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        if libpq:
            require_libpq()
        with needed(f"{module}.{name}", extra) if extra else nullcontext():
            value = getattr(import_module(homes[name]), name)
        # Found at once from now on: this function is only asked for names that the module does not have.
        setattr(sys.modules[module], name, value)
        return value

    return load
