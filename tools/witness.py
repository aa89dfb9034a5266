"""For how long the machine stood still: a process of its own, with a thread on each core that wakes and notes the time.

A core that the host gives to another guest freezes the processes on it, for seconds at times, while the rest goes on.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

PERIOD = 0.05
# Longer than any thread that only wakes up waits for its turn on a machine that is merely busy.
STANDSTILL = 0.5


class Witness:
    """Ask it how long any core stood still since a moment of `time.monotonic()`."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-I", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.longest(since=time.monotonic())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    @property
    def pid(self) -> int:
        return self._process.pid

    def longest(self, *, since: float) -> float:
        """Seconds of the longest standstill that ended after `since` or lasts; 0 if there was none."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{since}\n")
        return float(self._process.stdout.readline())


@dataclass(slots=True)
class _Core:
    number: int
    woke: float = field(default_factory=time.monotonic)
    gaps: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=10_000))

    def watch(self) -> None:
        os.sched_setaffinity(0, {self.number})
        while True:
            time.sleep(PERIOD)
            now = time.monotonic()
            if now - self.woke > STANDSTILL:
                self.gaps.append((self.woke, now))
            self.woke = now

    def longest(self, since: float, now: float) -> float:
        gaps = [*self.gaps, (self.woke, now)]
        return max((end - start for start, end in gaps if end > since and end - start > STANDSTILL), default=0.0)


def _testify() -> None:
    cores = [_Core(number) for number in sorted(os.sched_getaffinity(0))]
    for core in cores:
        threading.Thread(target=core.watch, daemon=True).start()
    for line in sys.stdin:
        now = time.monotonic()
        print(max(core.longest(float(line), now) for core in cores), flush=True)


if __name__ == "__main__":
    _testify()
