"""Throttles an export in the background while other sessions are active on the server that it reads from.

The lowest priority is not enough. It makes way for others on the machine of the export, but the server works for an
export as fast as for a job.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from holdfast._drivers import run_sync
from holdfast._store.archive import count_others_active

if TYPE_CHECKING:
    import psycopg

# An export rests while the server works for this many others on average.
BUSY = 0.2
# The part of the newest look in that average. A single statement of another session does not make an export rest.
NEWEST = 0.15
# A rest is this many times as long as the row group before it took, but no longer than LONGEST seconds.
TIMES = 12.0
LONGEST = 2.0


class ExportThrottle:
    """Throttles an export while other sessions are active: it pauses after row groups.

    Alone, an export is not slowed. Beside busy workers it leaves them nearly all of the server.
    """

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        """Look with `conn`, which is not the connection that reads the rows."""
        self._conn = conn
        self._others = 0.0
        self._at = time.monotonic()

    def wait(self) -> None:
        """Pause after a row group, if the server is busy."""
        self._others += NEWEST * (run_sync(self._conn, count_others_active()) - self._others)
        if self._others > BUSY:
            time.sleep(min(LONGEST, TIMES * (time.monotonic() - self._at)))
        self._at = time.monotonic()
