"""Answers about jobs, the caller and the audit, and the parts that all answers share."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence  # noqa: TC003 - pydantic reads the annotations
from datetime import datetime  # noqa: TC003 - pydantic reads the annotations
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import model_validator

from holdfast._ops.caller import Role  # noqa: TC001 - pydantic reads the annotations
from holdfast._store.answer import Answer, ErrorText, Id
from holdfast._store.bulk_action_line import BulkAction, RefusedJob  # noqa: TC001 - as above
from holdfast._store.dead_letter import DeadLetterGroup  # noqa: TC001 - as above
from holdfast._store.inspect import AttemptLine  # noqa: TC001 - as above
from holdfast._store.job import JobStatus  # noqa: TC001 - as above
from holdfast._store.search import JobLine, Looked
from holdfast._store.step import StepLine  # noqa: TC001 - as above

if TYPE_CHECKING:
    from holdfast._ops.caller import RequestRefused

Severity = Literal["critical", "warning"]


class Me(Answer):
    """The caller and the role."""

    name: str
    role: Role
    version: str
    """Of Holdfast."""
    databases: list[str]
    """The names of the databases; empty if there is only one. With several, paths of one begin with its name."""


PROBLEM = "urn:holdfast:problem:"


class Refusal(Answer):
    """Why a request was not answered, as RFC 9457 has it."""

    type: str
    """`urn:holdfast:problem:` and a code for programs, such as `not_found`."""
    title: str
    """The code in words. It is the same each time."""
    status: int
    """The HTTP status."""
    detail: str
    """For people: what is wrong, and what to do."""
    field: str | None = None
    """The first field or parameter that is wrong, such as `filter.kind`."""
    request_id: str | None = None
    """The id of the request, as in the header `X-Request-Id` and in the log; null in a stream."""

    @classmethod
    def from_refused(cls, refused: RequestRefused, request_id: str | None = None) -> Self:
        return cls(
            type=PROBLEM + refused.code,
            title=refused.code.replace("_", " ").capitalize(),
            status=refused.status,
            detail=refused.message,
            field=refused.field,
            request_id=request_id,
        )

    @property
    def code(self) -> str:
        return self.type.removeprefix(PROBLEM)


class Done(Answer):
    """An action on something that is not a job was done."""

    done: Literal[True] = True
    message: str


class Edited(Answer):
    """A line with values that people set."""

    edited: ClassVar[tuple[str, ...]]
    """The names of those values."""

    etag: str = ""
    """A mark of the values that people set. As `If-Match` of a change it refuses one that has been overtaken."""

    @model_validator(mode="before")
    @classmethod
    def _mark(cls, given: dict[str, Any]) -> dict[str, Any]:
        values = json.dumps([given[name] for name in cls.edited])
        return {"etag": f'"{hashlib.sha256(values.encode()).hexdigest()[:16]}"'} | given


class Items(Answer):
    """A list: every one has its `items`, and `next` where it comes in pages."""

    next: Id | None = None
    """`before` of the next page; null: there is none."""


class AuditLine(Answer):
    """An action of a person."""

    id: Id
    at: datetime
    who: str
    credential: str | None
    """How they came in: which token, session or issuer."""
    address: str | None
    """Of the client."""
    role: Role
    action: str
    """E.g. `jobs.retry`, `queue.pause`."""
    target: str | None
    """The queue, runner, limit or subscription that it was done to."""
    jobs: int | None
    """On how many, where it was done to jobs."""
    ids: list[Id] | None
    """On which."""
    detail: dict[str, Any]


class AuditPage(Items):
    items: list[AuditLine]
    """Newest first."""


class JobPage(Items):
    items: list[JobLine]
    """Newest first."""
    looked: Looked


class JobBlocker(Answer):
    """A chain that a job comes after; status null: it lives."""

    chain_id: Id
    status: JobStatus | None


class JobGroup(Answer):
    """How many of the chains that a job comes after or gathers have come how far."""

    done: int
    failed: int
    """They did not complete: they failed, or were cancelled or deleted."""
    waiting: int


class JobWait(Answer):
    """A reason why a job does not run now."""

    code: Literal[
        "paused", "order_stopped", "order_key", "isolated", "step", "not_due", "blockers", "limit", "unserved",
        "payload_unread", "silent_worker", "turn",
    ]  # fmt: skip
    text: str
    """In a sentence."""
    command: str | None = None
    """A command that helps; null where none does."""
    jobs: Sequence[Id] = ()
    """The jobs that it waits for."""
    chains: Sequence[Id] = ()
    """The chains that it waits for, the first three."""


class JobStory(JobLine):
    """Everything that is known of a job. Payload, headers and result are redacted."""

    max_runtime_ms: int | None
    """How long an attempt may run, by the live workers that serve the kind. Null: none does."""
    max_runtime_default: bool | None
    """True: that is three leases, as the kind sets no `max_runtime`."""
    expires_at: datetime | None
    locked_until: datetime | None
    cancel_requested_at: datetime | None
    worker_name: str | None
    app_version: str | None
    """The version of the application that runs it or ran it last; null: not known."""
    chain_id: Id
    next_id: Id | None
    payload: Any
    payload_bytes: int
    headers: Any
    result: Any
    redacted: bool
    """True: something in payload, headers or result was left out."""
    redacted_parts: list[Literal["payload", "headers", "result"]]
    """In which of them."""
    trace: str | None
    """The `traceparent` of who enqueued it."""
    progress: float | None
    progress_note: str | None
    error: ErrorText | None
    waits: list[JobWait]
    """Why it does not run now, the most important reason first; empty: it runs, or has ended."""
    key_stop: int | None
    """Of a dead letter that has stopped its order key: how many jobs wait for that. Null: it has stopped none."""
    attempts: list[AttemptLine]
    """Oldest first."""
    steps: list[StepLine]
    """The steps that its handler has recorded, without their results, oldest first; empty for most jobs."""
    replay_of: Id | None
    replays: list[Id]
    blockers: list[JobBlocker]
    """At most 10,000."""
    group: JobGroup | None
    """Of a live job that comes after other chains, or gathers them."""


class JobActionResult(Answer):
    """The result of an action, or its preview."""

    preview: bool
    matched: int
    """How many jobs were found that the action can be done to, at most the limit."""
    capped: bool
    """True: there may be more than were counted, or than the limit."""
    done: int
    """To how many jobs it was done so far; 0 in a preview."""
    bulk: BulkAction | None
    """The action by a filter, which workers carry on if it has not ended; null in a preview, and for ids."""
    refused: list[RefusedJob]
    """The first hundred that could not be acted on, and why."""
    sample: list[JobLine]
    """The first twenty of those matched."""
    looked: Looked
    at: datetime
    """When it was looked, by the database: with `created_until` set to it, nothing that came since is acted on."""


class BulkActions(Items):
    """Actions on all jobs that a filter finds."""

    items: list[BulkAction]
    """Open ones first, then the newest."""


class DeadLetters(Items):
    items: list[DeadLetterGroup]
    """Those with the most jobs first."""
    looked: Looked


class ChainItem(Answer):
    """A chain by its first and last job."""

    id: Id
    kind: str
    last_id: Id
    last_kind: str
    status: JobStatus
    created_at: datetime
    finished_at: datetime | None


class ChainPage(Items):
    items: list[ChainItem]
    looked: Looked


class ChainNode(Answer):
    """A job of a chain's graph."""

    id: Id
    chain_id: Id
    kind: str
    queue: str
    status: JobStatus
    attempt: int
    created_at: datetime
    finished_at: datetime | None
    error_code: str | None
    progress: float | None


class ChainEdge(Answer):
    """`next`: the one continues as the other. `replay`: the other runs the one again. `blocks`: it must end before."""

    source: Id
    """The one."""
    target: Id
    """The other."""
    kind: Literal["next", "replay", "blocks"]
    """How the other follows."""


class ChainGraph(Answer):
    """A chain with the chains it came after and those that come after it, at most 200 jobs."""

    id: Id
    status: JobStatus
    result: Any
    nodes: list[ChainNode]
    edges: list[ChainEdge]
    complete: bool
    """False: there are more jobs than are shown."""
