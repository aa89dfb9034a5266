"""Hold new code against what waits in the database, before it is deployed.

In one read-only transaction, it decodes the payloads of waiting jobs, the results of recorded steps, messages,
schedules and events with the types of the code, and compares names. It runs no handler, and changes nothing. Give all
applications that work on the database: a kind that none of them has is reported.
Exit status: 0 when all of it fits, 1 when something would break.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import psycopg

from holdfast._cli import load, session, table
from holdfast._cli.story_source import story_source
from holdfast._drivers import run_sync
from holdfast._logs.failure import Failure
from holdfast._logs.masking import mask
from holdfast._model.kind import Kind
from holdfast._ops.wording import counted
from holdfast._store.inspect import limit_time
from holdfast._store.rehearse import (
    reading_subscriptions,
    recorded_steps,
    waiting_events,
    waiting_jobs,
    waiting_messages,
    waiting_schedules,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Sequence

    from holdfast._app.app import Holdfast
    from holdfast._cli.session import Database
    from holdfast._cli.story_source import StorySource
    from holdfast._store.rehearse import RecordedStep, WaitingMessage

MOST = 100_000
_VERBS_OF = {None: ("step", "step_on"), "failed": ("step", "step_on"), "sleep": ("sleep",)}
_VERBS_OF |= {"waits": ("receive",), "received": ("receive",), "gathers": ("gather",), "gathered": ("gather",)}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("apps", metavar="APP", nargs="+", help="the applications, as module:attribute")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--database-url", metavar="URL", help="rehearse on this database")
    which.add_argument("--database", metavar="NAME", help="rehearse on only this one of several databases")
    table.configure(parser)


def run(arguments: argparse.Namespace) -> int:
    apps = [load.load(name) for name in arguments.apps]
    databases = session.listed(arguments) if arguments.database_url else load.databases(apps[0])
    if arguments.database:
        databases = [session.named(arguments.database, databases)]
    rehearsals = [_rehearsed(database, apps) for database in databases]
    faults = [fault for rehearsal in rehearsals for fault in rehearsal.lines()]
    unread = sorted({line for rehearsal in rehearsals for line in rehearsal.unreadable})
    seen = sum(rehearsal.seen for rehearsal in rehearsals)
    if arguments.json:
        names = ("database", "kind", "problem", "count", "ids")
        shown = [dict(zip(names, fault, strict=True)) for fault in faults]
        table.print_json({"ok": not faults, "jobs": seen, "faults": shown, "unreadable": unread})
        return 1 if faults else 0
    if faults:
        table.print_table(
            ("database", "kind", "would break", "count", "such as"),
            [(*fault[:4], ", ".join(map(str, fault[4]))) for fault in faults],
        )
    for line in unread:
        print(f"Not readable: {line}")
    print(f"{counted(seen, 'waiting job')} read: {'something would break' if faults else 'all of it fits'}.")
    return 1 if faults else 0


def _rehearsed(database: Database, apps: Sequence[Holdfast]) -> Rehearsal:
    rehearsal = Rehearsal(database.name, apps)
    with session.opened(database) as conn:
        conn.isolation_level, conn.read_only = psycopg.IsolationLevel.REPEATABLE_READ, True
        with conn.transaction():
            run_sync(conn, limit_time(session.SECONDS))
            rehearsal.run(conn)
    return rehearsal


class Rehearsal:
    """Holds the code against one database, and collects faults."""

    def __init__(self, database: str, apps: Iterable[Holdfast]) -> None:
        self._database = database
        self._kinds = {name: kind for app in apps for name, kind in app.kinds.items()}
        self._subscriptions = {name: each for app in apps for name, each in app.subscriptions.items()}
        self._sources: dict[str, StorySource] = {}
        self._faults: dict[tuple[str, str], list[int | str]] = defaultdict(list)
        self.unreadable: set[str] = set()
        """Steps that the source does not name, of kinds whose journals name others."""
        self.seen = 0

    def lines(self) -> list[tuple[str, str, str, int, list[int | str]]]:
        """Return each fault with its database, kind, number, and its first ids."""
        return [(self._database, *fault, len(ids), ids[:3]) for fault, ids in sorted(self._faults.items())]

    def run(self, conn: psycopg.Connection[Any]) -> None:
        after = 0
        while self.seen < MOST and (jobs := run_sync(conn, waiting_jobs(after))):
            for job in jobs:
                self._check_payload(job.kind, job.payload, job.version, job.id)
            kinds = {job.id: job.kind for job in jobs if job.is_story}
            if kinds:
                for step in run_sync(conn, recorded_steps(kinds)):
                    self._check_step(kinds[step.job_id], step)
                for message in run_sync(conn, waiting_messages(kinds)):
                    self._check_message(kinds[message.job_id], message)
            self.seen += len(jobs)
            after = jobs[-1].id
        for schedule in run_sync(conn, waiting_schedules()):
            self._check_payload(schedule.kind, schedule.payload, schedule.version, f"schedule {schedule.name}")
        for subscription in run_sync(conn, reading_subscriptions()):
            if subscription.name not in self._subscriptions:
                problem = "the subscription is stored, and no code declares it"
                self._faults[subscription.name, problem].append(f"subscription {subscription.name}")
            elif subscription.makes_jobs:
                for event in run_sync(conn, waiting_events(subscription.topics, subscription.after)):
                    self._check_payload(subscription.name, event.payload, 1, f"event {event.id}")

    def _check_payload(self, name: str, payload: str, version: int, of: int | str) -> None:
        if (kind := self._kinds.get(name)) is None:
            self._faults[name, "no code has a handler for this kind"].append(of)
        elif isinstance(kind, Kind):
            self._decode(name, "payload", lambda: kind.arguments(payload, version), of)

    def _check_step(self, name: str, step: RecordedStep) -> None:
        kind = self._kinds.get(name)
        if not isinstance(kind, Kind):
            return
        found = [one for one in self._source(kind).steps.get(step.name, ()) if one.verb in _VERBS_OF[step.state]]
        if not found:
            self._miss(kind, f"{step.state or 'step'} {step.name!r} is recorded and not in the code", step.job_id)
        elif step.state in {None, "received"} and all(one.read for one in found):
            self._decode(name, f"result of {step.name!r}", _any(found, step.result or "null"), step.job_id)
        elif step.state == "gathered" and all(one.read for one in found):
            for _, _, status, result, *_ in json.loads(step.result or "[]"):
                if status == "completed":
                    self._decode(name, f"result of {step.name!r}", _any(found, result or "null"), step.job_id)

    def _check_message(self, name: str, message: WaitingMessage) -> None:
        kind = self._kinds.get(name)
        if not isinstance(kind, Kind):
            return
        found = [one for one in self._source(kind).steps.get(message.name, ()) if one.verb == "receive"]
        if not found:
            self._miss(kind, f"the message {message.name!r} waits, and nothing receives it", message.job_id)
        else:
            self._decode(name, f"message {message.name!r}", _any(found, message.payload), message.job_id)

    def _source(self, kind: Kind[..., Any]) -> StorySource:
        if kind.name not in self._sources:
            self._sources[kind.name] = story_source(kind)
        return self._sources[kind.name]

    def _miss(self, kind: Kind[..., Any], problem: str, job: int) -> None:
        """Report a name that the code does not have, unless it may be one that is computed."""
        if unreadable := self._source(kind).unreadable:
            self.unreadable.update(f"{kind.name}, {line}" for line in unreadable)
        else:
            self._faults[kind.name, problem].append(job)

    def _decode(self, kind: str, what: str, decode: Callable[[], object], of: int | str) -> None:
        try:
            decode()
        except Exception as exc:  # noqa: BLE001 - an upgrade or a validator of the application may raise anything
            why = " ".join(mask(Failure.of(exc).text).split())
            self._faults[kind, f"{what}: {why[:120]}"].append(of)


def _any(found: Sequence[Any], text: str) -> Callable[[], object]:
    """Return what decodes with one of several steps of a name."""

    def decode() -> object:
        for one in found[:-1]:
            try:
                return one.read(text)
            except Exception:  # noqa: BLE001, S112 - the next one may fit
                continue
        return found[-1].read(text)

    return decode
