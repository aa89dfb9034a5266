"""Open dashboards: each listens to the live overview and asks for its page again every ten seconds, as a browser does.

python -m labs.bench.browsers ADDRESS TOKEN NUMBER    says when all are open; at the end of its input, what they got
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from statistics import quantiles
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EVERY = 10.0
PAGES = (
    ("/api/v1/jobs",),
    ("/api/v1/queues", "/api/v1/kinds"),
    ("/api/v1/workers",),
    ("/api/v1/runners",),
    ("/api/v1/subscriptions",),
    ("/api/v1/dead-letters",),
)
OPEN_SECONDS = 60.0


class Seen(NamedTuple):
    """The answers that browsers received while they were open."""

    seconds: float
    overviews: float
    """For each of them."""
    loads: int
    slowest: float
    """Seconds of the slowest page of twenty."""
    refused: int


class Browsers:
    def __init__(self, client: httpx.AsyncClient, number: int) -> None:
        self._client = client
        self._number = number
        self._first: set[int] = set()
        self.opened = asyncio.Event()
        self.overviews: Counter[int] = Counter()
        self.loads: list[float] = []
        self.refused = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(self._number):
                group.create_task(self._listen(number))
                group.create_task(self._load(number))

    def begin(self) -> None:
        """Forget what they got until now."""
        self.overviews.clear()
        self.loads.clear()
        self.refused = 0

    async def _listen(self, number: int) -> None:
        while True:
            async with self._client.stream("GET", "/api/v1/overview/live", timeout=OPEN_SECONDS) as stream:
                self.refused += stream.status_code != httpx.codes.OK
                async for line in stream.aiter_lines():
                    if line.startswith("data:"):
                        self.overviews[number] += 1
                        self._first.add(number)
                        if len(self._first) == self._number:
                            self.opened.set()

    async def _load(self, number: int) -> None:
        """They were not opened at one moment, and never ask at one."""
        await asyncio.sleep(EVERY * number / self._number)
        while True:
            begun = time.perf_counter()
            for path in PAGES[number % len(PAGES)]:
                answer = await self._client.get(path, timeout=OPEN_SECONDS)
                self.refused += answer.status_code != httpx.codes.OK
            self.loads.append(time.perf_counter() - begun)
            await asyncio.sleep(max(0.0, begun + EVERY - time.perf_counter()))


@contextmanager
def browsers(address: str, token: str, number: int, *, before: Callable[[], Any] | None = None) -> Iterator[list[Seen]]:
    """Hold dashboards open in a process of their own; afterwards the list has what they saw."""
    command = [sys.executable, "-m", "labs.bench.browsers", address, token, str(number)]
    seen: list[Seen] = []
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=before,  # noqa: PLW1509 - one thread, and a single call of the system
    ) as process:
        assert process.stdout is not None
        output = process.stdout.readline()
        assert output == "open\n", output
        yield seen
        reported, _ = process.communicate(timeout=OPEN_SECONDS)
        seen.append(Seen(**json.loads(reported)))


async def _main(address: str, token: str, number: int) -> Seen:
    limits = httpx.Limits(max_connections=None)
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=address, headers=headers, limits=limits) as client:
        open_ = Browsers(client, number)
        running = asyncio.create_task(open_.run())
        async with asyncio.timeout(OPEN_SECONDS):
            await open_.opened.wait()
        print("open", flush=True)
        open_.begin()
        begun = time.perf_counter()
        await asyncio.to_thread(sys.stdin.read)
        seconds = time.perf_counter() - begun
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    slowest = quantiles(open_.loads, n=20)[-1] if len(open_.loads) > 1 else 0.0
    return Seen(seconds, sum(open_.overviews.values()) / number, len(open_.loads), slowest, open_.refused)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_main(sys.argv[1], sys.argv[2], int(sys.argv[3])))._asdict()))
    # Nobody waits for the streams that were left.
    sys.stdout.flush()
    os._exit(0)
