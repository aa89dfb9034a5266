"""The queries and bodies of the operations API: every field is bounded, and unknown fields are refused."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator

from holdfast._ops.responses import Status  # noqa: TC001 - pydantic reads the annotations
from holdfast._store.search import MOST_ACTED_ON

MOST_JOBS = 200
LARGEST_ID = 2**63 - 1
_DIGITS = 19


def _number(value: object, info: ValidationInfo) -> object:
    """Ids are strings in JSON, and numbers here."""
    if isinstance(value, int) and not isinstance(value, bool) and info.mode == "python":
        return value
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= _DIGITS:
        return int(value)
    raise ValueError("an id is a string of digits")


Id = Annotated[
    int,
    BeforeValidator(_number, json_schema_input_type=Annotated[str, Field(pattern=r"^[0-9]{1,19}$")]),
    Field(ge=1, le=LARGEST_ID),
]
Word = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00]*$")]
Key = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00]*$")]


class Question(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class JobFilter(Question):
    """Which jobs; what is not given may be anything."""

    status: Status | None = None
    kind: Word | None = None
    queue: Word | None = None
    order_key: Key | None = None
    unique_key: Key | None = None
    error_code: Word | None = None
    created_from: AwareDatetime | None = None
    created_until: AwareDatetime | None = None
    text: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00]*$")] | None = None
    """Somewhere in what is shown of the payload; upper and lower case are the same."""


class JobSearch(JobFilter):
    before: Id | None = None
    most: Annotated[int, Field(ge=1, le=MOST_JOBS)] = 50


class ChainSearch(Question):
    kind: Word | None = None
    status: Status | None = None
    before: Id | None = None
    most: Annotated[int, Field(ge=1, le=MOST_JOBS)] = 50


class DeadLetterSearch(Question):
    kind: Word | None = None
    queue: Word | None = None
    created_from: AwareDatetime | None = None
    created_until: AwareDatetime | None = None


class OverviewQuestion(Question):
    minutes: Annotated[int, Field(ge=5, le=60)] = 60


class Before(Question):
    before: Id | None = None
    most: Annotated[int, Field(ge=1, le=MOST_JOBS)] = 50


class Newest(Question):
    most: Annotated[int, Field(ge=1, le=MOST_JOBS)] = 50


class JobAction(Question):
    """Retry dead letters, cancel or delete what waits, or give what waits another time: by ids or by a filter."""

    action: Literal["retry", "cancel", "delete", "reschedule"]
    ids: Annotated[list[Id], Field(min_length=1, max_length=MOST_ACTED_ON)] | None = None
    filter: JobFilter | None = None
    at: AwareDatetime | None = None
    """Of `reschedule`: when; a time in the past means now."""
    again: bool = False
    """Of `retry` by ids: also dead letters of which a replay lives or has completed."""
    preview: bool = True
    """True: only say what would be done."""
    most: Annotated[int, Field(ge=1, le=MOST_ACTED_ON)] = 100

    @model_validator(mode="after")
    def _one_way_to_name_them(self) -> Self:
        if (self.ids is None) == (self.filter is None):
            raise ValueError("give ids or a filter, and not both")
        if self.filter is not None and not self.filter.model_dump(exclude_none=True):
            raise ValueError("an empty filter would act on everything: say at least one thing of the jobs")
        if (self.action == "reschedule") != (self.at is not None):
            raise ValueError("`at` is for reschedule, and reschedule needs it")
        if self.again and (self.action != "retry" or self.ids is None):
            raise ValueError("`again` is for retry by ids")
        return self


class RunnerAction(Question):
    action: Literal["run", "pause", "resume"]


class QueueAction(Question):
    """`drain` cancels what waits in the queue, at most `most` at a time; by default it only says how many there are."""

    action: Literal["pause", "resume", "drain"]
    preview: bool = True
    most: Annotated[int, Field(ge=1, le=MOST_ACTED_ON)] = MOST_ACTED_ON


class QueueControl(Question):
    """The settings of a queue from now on; null leaves the worker's own setting."""

    concurrency: Annotated[int, Field(ge=0, le=100_000)] | None
    lease_ms: Annotated[int, Field(ge=1_000, le=86_400_000)] | None
    rate: Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)] | None


class SubscriptionAction(Question):
    action: Literal["pause", "resume", "replay", "skip", "release"]
    since: AwareDatetime | None = None
    after: Id | None = None
    """Of `replay`: since a time, or after an event."""
    key: Key | None = None
    """Of `release`: only this key; else everything that is parked."""

    @model_validator(mode="after")
    def _replay_from_where(self) -> Self:
        if self.action == "replay" and (self.since is None) == (self.after is None):
            raise ValueError("a replay needs `since` or `after`, and not both")
        if self.action != "replay" and (self.since or self.after):
            raise ValueError("`since` and `after` are for replay")
        if self.action != "release" and self.key is not None:
            raise ValueError("`key` is for release")
        return self


class Login(Question):
    token: Annotated[str, Field(min_length=1, max_length=4096)]
