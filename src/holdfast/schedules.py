"""Looking at the schedules of runners and periodic jobs, and changing them while workers run.

Each function makes a statement, for `run(conn, statement)` or `run_sync(conn, statement)` with a connection of yours.
"""

from holdfast._drivers import run, run_sync
from holdfast._store.schedule import (
    edit_schedule,
    list_running,
    list_schedules,
    pause_schedule,
    remove_schedule,
    resume_schedule,
    trigger_schedule,
)

__all__ = [
    "edit_schedule",
    "list_running",
    "list_schedules",
    "pause_schedule",
    "remove_schedule",
    "resume_schedule",
    "run",
    "run_sync",
    "trigger_schedule",
]
