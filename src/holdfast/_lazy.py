"""Lazy imports: a public module imports a name when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy(module: str, homes: Mapping[str, str], *, extra: str = "") -> Callable[[str], Any]:
    """Return the `__getattr__` of a module whose names are defined in other modules, which may need an extra.

    `extra`: the one to name if a library is missing. Defaults to none: the library's own error is raised.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        try:
            return getattr(import_module(homes[name]), name)
        except ModuleNotFoundError as exc:
            if not extra:
                raise
            raise ImportError(f"{module}.{name} needs the extra: pip install holdfast[{extra}]") from exc

    return load
