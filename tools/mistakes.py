"""The page of errors, made from the docstrings of the error classes.

python -m tools.mistakes           print it
python -m tools.mistakes --write   write it to docs/reference/errors.md
"""

from __future__ import annotations

import argparse
import inspect
import pkgutil
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast
from holdfast import HoldfastError
from tests.mistakes.table import IN_COMMANDS, IN_PYTHON

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


PAGE = Path(__file__).parent.parent / "docs" / "reference" / "errors.md"
# Where users import an error from, in the order in which they are looked up.
_DOORS = ("holdfast", "holdfast.sinks", "holdfast.ops", "holdfast.inbox", "holdfast.archive")

_HEAD = """\
# Errors

<!-- made by python -m tools.mistakes --write -->

Every message names what is wrong, where, and what to do, for example `@app.job needs a name in parentheses: write
@app.job("send")`. Tests make {count} mistakes that newcomers make, in code and in commands, and read each message.

`HoldfastError` is the base class: `except HoldfastError` catches every error of Holdfast. A wrong argument is a
`TypeError` or a `ValueError`, as in Python itself. A class without a module is not imported: you see its name in a log
or in a dead letter.

"""


def page() -> str:
    count = sum(len(area.mistakes) for area in (*IN_PYTHON, *IN_COMMANDS))
    return _HEAD.format(count=count) + _classes()


def error_classes() -> list[type[HoldfastError]]:
    """Return every error class of the package that users can meet, by name."""
    for module in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if not module.name.startswith(("holdfast.contrib", "holdfast.__main__")):
            import_module(module.name)
    return sorted(
        (cls for cls in _below(HoldfastError) if not cls.__name__.startswith("_") and _is_ours(cls)),
        key=lambda cls: cls.__name__,
    )


def import_path(cls: type[HoldfastError]) -> str | None:
    """Return where users import it from; None if it is only raised and logged."""
    for door in _DOORS:
        if cls.__name__ in getattr(import_module(door), "__all__", ()):
            return f"{door}.{cls.__name__}"
    return None


def _below(cls: type[HoldfastError]) -> Iterator[type[HoldfastError]]:
    for one in cls.__subclasses__():
        yield one
        yield from _below(one)


def _is_ours(cls: type[HoldfastError]) -> bool:
    return cls.__module__.startswith("holdfast.")


def _classes() -> str:
    rows = ["| class | meaning | cure |", "|---|---|---|"]
    for cls in error_classes():
        path = import_path(cls)
        meaning, _, cure = (" ".join(part.split()) for part in inspect.cleandoc(cls.__doc__ or "").partition("Cure: "))
        rows.append(f"| `{path or cls.__name__}` | {meaning} | {cure} |")
    return "\n".join(rows) + "\n"


def main(arguments: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.mistakes", description="The page of errors.")
    parser.add_argument("--write", action="store_true", help="write it to docs/reference/errors.md")
    if parser.parse_args(None if arguments is None else list(arguments)).write:
        PAGE.write_text(page())
        return 0
    print(page(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
