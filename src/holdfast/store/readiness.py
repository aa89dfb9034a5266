"""Whether somebody works and somebody reaps: asked often, and answered from one small index."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.store.schema import verify
from holdfast.store.statement import Statement, statements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.store.statement import Row


class Readiness(NamedTuple):
    live: int
    """Workers that were heard of within a minute."""
    silent: int
    """Those that were within an hour, and did not say that they stop."""
    reaped: float | None
    """Seconds since a live one last reaped; None: none ever did."""
    started: float | None
    """Seconds since the first of the live ones started."""
    unmaintained: float | None
    """For how many seconds the runner `maintenance` has been due; negative: it is not yet; None: it never ran."""


def read_readiness() -> Statement[Readiness]:
    return Statement(statements()["read_readiness"], {}, lambda rows: Readiness._make(rows[0]))


def check_schema() -> Statement[None]:
    """Raise, as `holdfast.store.schema.check` does, unless this code can work with the schema."""
    return Statement(statements()["applied_migrations"], {}, _verified)


def _verified(rows: Sequence[Row]) -> None:
    verify([(number, name, checksum) for number, name, checksum in rows])
