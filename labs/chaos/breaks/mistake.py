"""A mistake in Python code: a function that stands in the place of another, and leaves a note when it is called."""

from __future__ import annotations

import os
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")

NOTE = "mistake"
"""The file that the first call leaves in the folder of the play: without it the play has shown nothing."""


def substitute(owner: object, name: str, function: Callable[..., object]) -> None:
    """Put a function in the place of one that must be there."""
    assert hasattr(owner, name), f"{owner} has no {name}"
    setattr(owner, name, noted(function))


def noted(function: Callable[P, T]) -> Callable[P, T]:
    """Return the same function, which notes that it is called."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        note()
        return function(*args, **kwargs)

    return call


def note() -> None:
    Path(os.environ["CHAOS_FOLDER"], NOTE).touch()
