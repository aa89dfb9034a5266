"""The application's events: a topic, a relay of it to the broker, and a job for each event."""

from __future__ import annotations

import os
import time
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

from holdfast import Event, Job  # noqa: TC001 - read when the handler is registered
from holdfast._relay.sinks.nats import NatsSink
from labs.chaos.application import RETRY, Signed, State, app, write
from labs.chaos.broker import STREAM, TOPIC

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from holdfast._relay.message import Message, Publish

VARIABLE = "CHAOS_NATS"
"""The broker's address. Without one a replica neither relays nor receives events."""
PARTITIONS = 4
# A confirmation that takes longer will not come, in seconds.
PATIENCE = 2.0


class Position(TypedDict):
    """The position of an event in its key."""

    n: int


published = app.event(TOPIC, Position)


class NotedSink:
    """NATS, and a file that gets a line for each confirmation. The file outlives the process."""

    def __init__(self, url: str, path: Path) -> None:
        patience = timedelta(seconds=PATIENCE)
        self._to = NatsSink(url, subject="{topic}.{key}", stream=STREAM, timeout=patience)
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    @property
    def name(self) -> str:
        return self._to.name

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Publish, None]:
        async with self._to.open() as publish:

            async def noted(message: Message) -> None:
                await publish(message)
                os.write(self._fd, b"%d %d\n" % (int(message.headers["holdfast-event-id"]), time.monotonic_ns()))

            yield noted


async def received(job: Job[State], event: Event[Position]) -> Signed:
    """Enter the event into the ledger, and be done with it, in one transaction."""
    job.state.book.begun(job)
    signed = job.state.signed(job)
    async with job.state.lines.transaction() as conn:
        await write(conn, job, signed, event.id)
        return await job.complete(conn, signed)


def serve_named() -> None:
    """Let this process relay and receive events, if its environment names a broker."""
    if url := os.environ.get(VARIABLE):
        path = Path(os.environ["CHAOS_FOLDER"]) / f"{os.environ['CHAOS_NAME']}.handed"
        app.relay("out", published, to=NotedSink(url, path), start="beginning", partitions=PARTITIONS)
        app.on(published, name="received", start="beginning", queue="event", retry=RETRY)(received)
