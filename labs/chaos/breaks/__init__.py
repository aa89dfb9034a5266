"""Builds of the library that are broken on purpose, and the scenarios in which the oracle must notice each."""

from __future__ import annotations

SOUND = "nothing"
"""The name of the build in which nothing is broken."""


def apply(name: str) -> None:
    """Make this process a replica of the build of that name: its kinds, and what is broken in Python."""
    from importlib import import_module

    from labs.chaos.breaks.patches import PATCHES

    import_module("labs.chaos.breaks.kinds")
    if name in PATCHES:
        PATCHES[name]()
