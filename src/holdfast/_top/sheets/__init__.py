"""Lists every table of the terminal, in the order of its tabs.

fleet.py    shows queues, kinds and workers
runners.py  shows runners and relays
jobs.py     shows dead letters and jobs
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._top.sheets.fleet import KINDS, QUEUES, WORKERS
from holdfast._top.sheets.jobs import DEAD_LETTERS, JOBS
from holdfast._top.sheets.runners import RELAYS, RUNNERS

if TYPE_CHECKING:
    from holdfast._top.sheet import AnySheet

SHEETS: tuple[AnySheet, ...] = (QUEUES, KINDS, WORKERS, RUNNERS, RELAYS, DEAD_LETTERS, JOBS)
