"""Whether this process is a child of a worker that still imports the application."""

from __future__ import annotations

import sys

from holdfast._model.errors import HoldfastError

IMPORTING = "holdfast-importing"
"""The name of a child until it has imported the application."""


def refuse_in_child(verb: str) -> None:
    """Raise a HoldfastError while a child imports the application: what a module does there, every child would do."""
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is not None and multiprocessing.current_process().name == IMPORTING:
        raise HoldfastError(
            f"{verb}: this module is imported in a process for handlers, and would do again what the worker's program "
            'does: put what runs under `if __name__ == "__main__":`'
        )
