"""Steps of stories and messages to them: records, loads and receives them, and sends messages."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from holdfast._model.errors import InvalidJob
from holdfast._store.answer import Answer
from holdfast._store.enqueue import jobs_text
from holdfast._store.statement import Row, Statement, one, statement, text_array, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast._model.new_job import NewJob
    from holdfast._store.lease import Held

At: TypeAlias = tuple[str, str | None]
"""Names a step within its story: its name, and its key."""
State: TypeAlias = Literal["failed", "sleep", "waits", "received", "gathers", "gathered"]
Sent: TypeAlias = Literal["sent", "duplicate", "already_ended", "not_found"]

_MILLISECOND = timedelta(milliseconds=1)


class NewStep(NamedTuple):
    """A step to record. Without a name, the story is marked and nothing is recorded."""

    held: Held
    at: At | None = None
    result: str | None = None
    """JSON text."""
    state: State | None = None
    """None: a function that returned."""
    until: timedelta | datetime | None = None
    """How long, or until when, it sleeps."""
    beside: bool = False
    """Whether others ran beside it."""


class Saved(NamedTuple):
    """The answer to a step that was to be recorded."""

    answer: str = "kept"
    """`kept`, `over` (a sleep that has ended already), `busy`, or why the story is lost."""
    due: datetime | None = None
    """Until when it sleeps."""


class Recorded(NamedTuple):
    """A step that was recorded earlier."""

    state: State | None
    beside: bool | None
    result: str | None
    due: datetime | None
    over: bool
    """Whether its time has come."""


class Received(NamedTuple):
    """The answer to a look for a message."""

    answer: str
    """`got`, `timeout`, `wait`, `busy`, or why the story is lost."""
    payload: str | None
    due: datetime | None


class Child(NamedTuple):
    """How the chain of a job that a story gathered has ended."""

    chain_id: int
    status: str
    result: str | None
    """JSON text."""
    error_code: str | None
    error: str | None


class Gathered(NamedTuple):
    """The answer to a look at the jobs that a story gathers."""

    answer: str
    """`got`, `wait`, `busy`, or why the story is lost."""
    children: list[Child]
    """All of them, in their order, if `got`."""


class Kept(NamedTuple):
    """The answer to a step in its handler's own transaction."""

    answer: str
    under: str | None
    """The transaction."""


class StepLine(Answer):
    """A step that a story has recorded, or a message that it has not received yet."""

    at: datetime
    name: str
    key: str | None
    state: Literal["done", "failed", "sleep", "waits", "received", "gathers", "gathered", "sent"]
    """`sleep` until `due`; `waits` for a message, at most until `due`; `gathers`: waits for jobs that it has enqueued;
    `sent`: a message that waits for the story."""
    due: datetime | None
    """When it goes on by itself, or stops waiting; null: neither."""


def read_journal(job_id: int) -> Statement[list[StepLine]]:
    """Return the steps of a live job, oldest first."""
    return statement("read_journal", lambda rows: step_lines(json.loads(rows[0][0] or "[]")), id=job_id)


def step_lines(journal: Sequence[Mapping[str, Any]] | None) -> list[StepLine]:
    """Return the journal of an ended story as lines, without its results."""
    return [
        StepLine(
            at=entry["at"],
            name=entry.get("name") or entry["message"],
            key=entry.get("key"),
            state=entry.get("state") or ("sent" if "message" in entry else "done"),
            due=entry.get("due"),
        )
        for entry in journal or ()
        if not entry.get("taken")
    ]


def save_steps(worker: int, steps: Sequence[NewStep], *, again: bool = False) -> Statement[list[Saved]]:
    """Record steps of any number of stories; return what became of each.

    `again`: some may have been recorded by a statement whose answer was lost.
    """

    def read(rows: Sequence[Row]) -> list[Saved]:
        saved = [Saved()] * len(steps)
        for nth, answer, due in rows:
            saved[nth] = Saved(answer, due)
        return saved

    entries = ",".join([_entry(nth, step) for nth, step in enumerate(steps)])
    return statement("save_steps", read, worker=worker, entries=f"[{entries}]", again=again)


def load_steps(worker: int, held: Held) -> Statement[dict[At, Recorded] | str]:
    """Return all steps of a story; a text is the reason why the story is lost."""

    def read(rows: Sequence[Row]) -> dict[At, Recorded] | str:
        if rows and rows[0][0] is not None:
            return str(rows[0][0])
        return {
            (name, key): Recorded(state, beside, result, due, over)
            for _, name, key, state, beside, result, due, over in rows
        }

    return statement("load_steps", read, worker=worker, id=held.id, token=held.token)


def save_step(worker: int, held: Held, at: At, result: str, *, beside: bool) -> Statement[Kept]:
    """Record a step in its handler's own transaction, after what its function wrote. The story must be marked."""
    name, key = at
    return statement(
        "save_step",
        one(Kept),
        worker=worker,
        id=held.id,
        token=held.token,
        name=name,
        key=key,
        beside=beside or None,
        result=result,
    ).storing(InvalidJob)


def forget_failures(worker: int, held: Held, steps: Iterable[At]) -> Statement[str]:
    """Forget that these steps failed; return `held`, `busy`, or why the story is lost."""
    names, keys = zip(*steps, strict=True)
    return statement(
        "forget_failures",
        value,
        worker=worker,
        id=held.id,
        token=held.token,
        names=text_array(names),
        keys=text_array(keys),
    )


def count_attempts_anew(worker: int, held: Held, under: Iterable[str]) -> Statement[str]:
    """Count the attempts of a story anew if one of these transactions has committed; return as `forget_failures`."""
    return statement("count_attempts_anew", value, worker=worker, id=held.id, token=held.token, under=text_array(under))


def open_transactions(under: Iterable[str]) -> Statement[bool]:
    """Return whether one of these transactions is still open."""
    return statement("open_transactions", value, under=text_array(under))


def take_message(worker: int, held: Held, at: At, timeout: timedelta | None, *, beside: bool) -> Statement[Received]:
    """Take the oldest message of this name, or begin to wait for one."""
    name, key = at
    return statement(
        "take_message",
        one(Received),
        worker=worker,
        id=held.id,
        token=held.token,
        name=name,
        key=key,
        ms=None if timeout is None else timeout // _MILLISECOND,
        beside=beside or None,
    )


def gather_jobs(worker: int, held: Held, at: At, jobs: Sequence[NewJob[Any]], *, beside: bool) -> Statement[Gathered]:
    """Enqueue these jobs, unless an earlier call has, and return how their chains ended if all have."""
    name, key = at
    return statement(
        "gather_jobs",
        lambda rows: Gathered(rows[0][0], read_children(rows[0][1])),
        worker=worker,
        id=held.id,
        token=held.token,
        name=name,
        key=key,
        jobs=jobs_text(jobs),
        beside=beside or None,
    ).storing(InvalidJob)


def read_children(ends: str | None) -> list[Child]:
    """Return how the jobs of a gather ended, from its record."""
    return [Child(*end) for _, *end in json.loads(ends or "[]")]


def send_message(  # noqa: PLR0913 - one keyword per part of the address
    name: str,
    payload: str,
    *,
    key: str | None,
    chain: int | None = None,
    kind: str | None = None,
    unique_key: str | None = None,
) -> Statement[Sent]:
    """Send a message to the live job of a chain, or of a kind with this unique key."""
    return statement(
        "send_message", value, chain=chain, name=name, payload=payload, key=key, kind=kind, unique_key=unique_key
    ).storing(InvalidJob)


def _entry(nth: int, step: NewStep) -> str:
    fields: dict[str, object] = {"nth": nth, "id": step.held.id, "token": step.held.token}
    if step.at is not None:
        fields["name"], fields["key"] = step.at
    if step.state is not None:
        fields["state"] = step.state
    if step.beside:
        fields["beside"] = True
    if isinstance(step.until, timedelta):
        fields["ms"] = step.until // _MILLISECOND
    elif step.until is not None:
        fields["until"] = step.until.isoformat()
    text = json.dumps(fields)
    # The result is inserted as it is, because it is JSON text already.
    return text if step.result is None else f'{text[:-1]},"result":{step.result}}}'
