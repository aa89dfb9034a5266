"""Feeds the events of a test to its subscriptions: each becomes the job that a worker would make of it."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast._logs.log import TRACEPARENT
from holdfast._model.new_job import NewJob, OrderKey
from holdfast._model.unique import Unique
from holdfast._relay.subscription import Feed
from holdfast._store.enqueue import enqueue_job
from holdfast._store.testing import unread_events

if TYPE_CHECKING:
    from holdfast._app.app import Holdfast
    from holdfast._engine.jobs.recorder import RunStatement
    from holdfast._store.testing import UnreadEvent

_LONGEST_KEY = 500


class EventFeed:
    """Remembers the last event of each subscription. Events of the test's own transaction are read too.

    A worker reads committed events only, in the order of their transactions; here they come in the order of their ids.
    """

    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self._last: dict[str, int] = {}

    async def make_jobs(self, run: RunStatement) -> int:
        """Enqueue a job for each event that was not read yet, for each subscription with a handler; return how many."""
        made = 0
        for feed in self._app.subscriptions.values():
            if not isinstance(feed, Feed):
                continue
            while events := await run(unread_events(feed.topics, after=self._last.get(feed.name, 0))):
                for event in events:
                    await run(enqueue_job(_job(feed, event)))
                self._last[feed.name] = events[-1].id
                made += len(events)
        return made


def _job(feed: Feed, event: UnreadEvent) -> NewJob[Any]:
    envelope = replace(
        feed.envelope,
        unique=Unique(f"{feed.name}:{event.id}"),
        order_key=OrderKey(_order_key(feed.name, event.key)) if feed.ordered and event.key is not None else None,
        headers=() if event.trace is None else ((TRACEPARENT, event.trace),),
    )
    return NewJob(envelope, event.payload)


def _order_key(name: str, key: str) -> str:
    if len(f"{name}{key}".encode()) >= _LONGEST_KEY:
        key = hashlib.md5(key.encode(), usedforsecurity=False).hexdigest()
    return f"{name}:{key}"
