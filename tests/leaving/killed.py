"""A mover that kills its own process at a step: `python -m tests.leaving.killed FROM TO STEP`."""

from __future__ import annotations

import os
import signal
import sys

import psycopg

from holdfast._cli.mover import MovePlace, Mover
from holdfast._store.moving import Which


def main(source: str, destination: str, step: str) -> None:
    def progress(name: str, _tally: object) -> None:
        if name == step:
            os.kill(os.getpid(), signal.SIGKILL)

    with psycopg.connect(source, autocommit=True) as here, psycopg.connect(destination, autocommit=True) as there:
        Mover(MovePlace("here", here), MovePlace("there", there), Which(), batch=3, progress=progress).move()


if __name__ == "__main__":
    main(*sys.argv[1:])
