"""Every table of the terminal, in the order of its tabs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.top.sheets.dead_letters import DEAD_LETTERS
from holdfast.top.sheets.jobs import JOBS
from holdfast.top.sheets.kinds import KINDS
from holdfast.top.sheets.queues import QUEUES
from holdfast.top.sheets.relays import RELAYS
from holdfast.top.sheets.runners import RUNNERS
from holdfast.top.sheets.workers import WORKERS

if TYPE_CHECKING:
    from holdfast.top.sheet import AnySheet

SHEETS: tuple[AnySheet, ...] = (QUEUES, KINDS, WORKERS, RUNNERS, RELAYS, DEAD_LETTERS, JOBS)
