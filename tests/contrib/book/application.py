"""The Holdfast of the tests' Django site. Its handlers are in jobs.py, which only Django imports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast import Holdfast

if TYPE_CHECKING:
    from holdfast import NewJob

app = Holdfast()


def new(kind: str) -> NewJob[Any]:
    """Make a job of a kind by its name: its module is left to Django to find."""
    found: Any = app.kinds[kind]
    job: NewJob[Any] = found.new()
    return job
