"""Lets an export in the background give way: on its own machine, and on the server that it reads from.

The lowest priority is not enough. It makes way for others on the machine of the export, but the server works for an
export as fast as for a job.
"""

from __future__ import annotations

import time

# After a row group, an export rests this many times as long as it was kept waiting.
TIMES = 4.0
# Seconds of a rest at most.
LONGEST = 2.0


class Rests:
    """Measures how long an export was kept waiting for a processor or for rows, and rests in proportion.

    Alone on an idle machine it hardly waits and hardly rests. Beside busy workers it gets slower, notices that, and
    leaves them nearly everything.
    """

    def __init__(self) -> None:
        self._at, self._used = time.monotonic(), time.process_time()

    def take(self) -> None:
        """Rest, if something has kept this process waiting since the last rest."""
        waited = time.monotonic() - self._at - (time.process_time() - self._used)
        if waited > 0:
            time.sleep(min(LONGEST, TIMES * waited))
        self._at, self._used = time.monotonic(), time.process_time()
