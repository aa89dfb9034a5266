"""The processor time of a process and all that it started, from /proc."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Return what it and its children have used, those that have ended included."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):  # it has ended: its parent counts it
        return 0.0
    # utime, stime, and of the children that were waited for.
    own = sum(map(int, fields[11:15])) / _TICKS
    return own + sum(cpu_seconds(int(child)) for child in children)


def time_on_cpu(pid: int) -> float:
    """Return what its threads have used, to the microsecond."""
    try:
        return (
            sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()) / 1e9
        )
    except (FileNotFoundError, ProcessLookupError):
        return 0.0


def server_seconds(pid: int) -> float:
    """Return what a server and all its processes have used, to the microsecond for those that live."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ended = sum(map(int, fields[13:15])) / _TICKS
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return ended + time_on_cpu(pid) + sum(time_on_cpu(int(child)) for child in children)
