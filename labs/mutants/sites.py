"""Finds the sites of a file, whichever its language."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labs.mutants.python_sites import python_sites
from labs.mutants.sql_sites import sql_sites

if TYPE_CHECKING:
    from pathlib import Path

    from labs.mutants.site import Site


def sites_of(path: Path, package: Path) -> list[Site]:
    """Return the sites of a file of Python or SQL. A mutant of it may not be valid."""
    find = sql_sites if path.suffix == ".sql" else python_sites
    return list(find(path.relative_to(package).as_posix(), path.read_text()))
