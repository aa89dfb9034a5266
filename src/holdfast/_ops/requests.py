"""The queries and bodies that the operations API accepts."""

from __future__ import annotations

import re
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationInfo,
    model_validator,
)

from holdfast._model.errors import InvalidJob
from holdfast._model.limit import LARGEST, parsed_rate
from holdfast._model.option import KEY_LIMIT, QUEUE_LIMIT, check_text
from holdfast._model.schedule import parse
from holdfast._ops.responses.trends import By, Range  # noqa: TC001 - pydantic reads the annotations
from holdfast._store.job import JobStatus  # noqa: TC001 - as above
from holdfast._store.search import MOST_ACTED_ON, MOST_LISTED

if TYPE_CHECKING:
    from collections.abc import Mapping


LARGEST_ID = 2**63 - 1
MOST_EXPORTS = 1_000
_DIGITS = 19
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def _number(value: object, info: ValidationInfo) -> object:
    """Ids are strings in JSON, and numbers here."""
    if isinstance(value, int) and not isinstance(value, bool) and info.mode == "python":
        return value
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= _DIGITS:
        return int(value)
    raise ValueError("an id is a string of digits")


def _day(value: object) -> object:
    """Refuse what pydantic also takes for a day: a number of seconds, or a time at midnight."""
    if isinstance(value, str) and _DAY.fullmatch(value):
        return date.fromisoformat(value)
    raise ValueError("a day is written like 2030-01-31")


Id = Annotated[
    int,
    BeforeValidator(_number, json_schema_input_type=Annotated[str, Field(pattern=r"^[0-9]{1,19}$")]),
    Field(ge=1, le=LARGEST_ID),
]
Word = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00]*$")]
Tag = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00]*$")]
Day = Annotated[date, BeforeValidator(_day, json_schema_input_type=date)]
Key = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00]*$")]


def _option(name: str, limit: int) -> AfterValidator:
    """Refuse what a job's option of this name cannot be."""

    def check(text: str) -> str:
        try:
            check_text(name, text, limit)
        except InvalidJob as exc:
            raise ValueError(str(exc)) from None
        return text

    return AfterValidator(check)


Queue = Annotated[str, Field(min_length=1, max_length=QUEUE_LIMIT), _option("queue", QUEUE_LIMIT)]
OrderKey = Annotated[str, Field(min_length=1, max_length=KEY_LIMIT), _option("order_key", KEY_LIMIT)]


def _rate(rate: str) -> str:
    try:
        parsed_rate(rate)
    except InvalidJob as error:
        raise ValueError(str(error)) from None
    return rate


Rate = Annotated[str, AfterValidator(_rate)]


class Question(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class JobFilter(Question):
    """Which jobs; what is not given may be anything."""

    status: JobStatus | None = None
    kind: Word | None = None
    queue: Word | None = None
    order_key: Key | None = None
    tag: Tag | None = None
    unique_key: Key | None = None
    error_code: Word | None = None
    created_from: AwareDatetime | None = None
    created_until: AwareDatetime | None = None
    text: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00]*$")] | None = None
    """Somewhere in what is shown of the payload; upper and lower case are the same."""


class JobSearch(JobFilter):
    before: Id | None = None
    limit: Annotated[int, Field(ge=1, le=MOST_LISTED)] = 50


class ChainSearch(Question):
    kind: Word | None = None
    status: JobStatus | None = None
    before: Id | None = None
    limit: Annotated[int, Field(ge=1, le=MOST_LISTED)] = 50


class DeadLetterSearch(Question):
    kind: Word | None = None
    queue: Word | None = None
    created_from: AwareDatetime | None = None
    created_until: AwareDatetime | None = None
    dismissed: bool = False
    """True: also groups that were dismissed."""


class DeadLetterAction(Question):
    """`dismiss` hides a group of dead letters until a job of it fails again; `restore` shows it at once."""

    action: Literal["dismiss", "restore"]
    """The change."""
    kind: Word
    """Of the group."""
    queue: Word
    """Of the group."""
    error_code: Annotated[str, Field(max_length=200, pattern=r"^[^\x00]*$")]
    """Of the group; empty where the jobs have none."""
    last_at: AwareDatetime | None = None
    """Of `dismiss`: the `last_at` of the group as it was shown. A later failure brings the group back."""

    @model_validator(mode="after")
    def _last_of_a_dismissal(self) -> Self:
        if (self.action == "dismiss") != (self.last_at is not None):
            raise ValueError("`last_at` is for dismiss, and dismiss needs it")
        return self


class OverviewQuestion(Question):
    minutes: Annotated[int, Field(ge=5, le=60)] = 60


class TrendQuestion(Question):
    range: Range = "1h"
    """How far back."""
    by: By = "queue"
    """By what the lines are."""
    queue: Word | None = None
    """Only this queue."""
    kind: Word | None = None
    """Only this kind."""


class Before(Question):
    before: Id | None = None
    limit: Annotated[int, Field(ge=1, le=MOST_LISTED)] = 50


class Newest(Question):
    limit: Annotated[int, Field(ge=1, le=MOST_LISTED)] = 50


class JobAction(Question):
    """Retry dead letters, cancel or delete what waits, or give what waits another time: by ids or by a filter."""

    action: Literal["retry", "cancel", "delete", "reschedule"]
    ids: Annotated[list[Id], Field(min_length=1, max_length=MOST_ACTED_ON)] | None = None
    filter: JobFilter | None = None
    at: AwareDatetime | None = None
    """Of `reschedule`: when; a time in the past means now."""
    again: bool = False
    """Of `retry` by ids: also dead letters whose new job is live or has completed."""
    preview: bool = True
    """True: only say what would be done."""
    limit: Annotated[int, Field(ge=1, le=LARGEST_ID)] | None = None
    """Of a filter: end after so many jobs, the oldest first. Null: all; with `text`, the newest 1,000."""
    rate: Rate | None = None
    """Of a filter without `text`: how fast, such as `50/s` or `600/min`. Null: as fast as it goes."""

    @model_validator(mode="after")
    def _one_way_to_name_them(self) -> Self:
        if (self.ids is None) == (self.filter is None):
            raise ValueError("give ids or a filter, and not both")
        if self.filter is None and (self.limit is not None or self.rate is not None):
            raise ValueError("`limit` and `rate` are for a filter")
        if self.filter is not None and self.filter.text is not None and self.rate is not None:
            raise ValueError("`rate` is for a filter without `text`")
        if self.filter is not None and not self.filter.model_dump(exclude_none=True):
            raise ValueError("an empty filter would act on everything: say at least one thing of the jobs")
        if (self.action == "reschedule") != (self.at is not None):
            raise ValueError("`at` is for reschedule, and reschedule needs it")
        if self.again and (self.action != "retry" or self.ids is None):
            raise ValueError("`again` is for retry by ids")
        return self


Reason = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00]*$")]


class BulkActionControl(Question):
    """`stop` ends a bulk action after its current portion; `resume` lets it go on where it was."""

    action: Literal["stop", "resume"]
    """The change."""


class OrderKeyAction(Question):
    """`resume` lets an order key go on that a dead letter has stopped, without that job."""

    action: Literal["resume"]
    key: OrderKey


class RunnerAction(Question):
    """`edit` replaces its times until the code declares new ones; `remove` deletes one that no code declares."""

    action: Literal["run", "pause", "resume", "edit", "remove"]
    """`run` starts it now; `pause` and `resume` concern its schedule."""
    reason: Reason | None = None
    """Of `pause`: shown wherever the pause is."""
    schedule: Word | None = None
    """Of `edit`: an interval such as `every 120s`, or a line of cron with a time zone, `0 2 * * * Europe/Warsaw`."""

    @model_validator(mode="after")
    def _reason_of_a_pause(self) -> Self:
        _check_reason(self)
        if (self.action == "edit") != (self.schedule is not None):
            raise ValueError("`schedule` is for edit, and edit needs it")
        if self.schedule is not None:
            parse(self.schedule)
        return self


class QueueAction(Question):
    """`cancel_waiting` cancels the jobs that wait in the queue, as a bulk action."""

    action: Literal["pause", "resume", "cancel_waiting"]
    reason: Reason | None = None
    """Of `pause`: shown wherever the pause is."""
    preview: bool | None = None
    """True: only tell what would be done. Defaults to true for `cancel_waiting`, and to false for the others."""
    limit: Annotated[int, Field(ge=1, le=LARGEST_ID)] | None = None
    """Of `cancel_waiting`: end after so many jobs. Null: all."""

    @model_validator(mode="after")
    def _reason_of_a_pause(self) -> Self:
        _check_reason(self)
        return self

    @property
    def is_preview(self) -> bool:
        return self.action == "cancel_waiting" if self.preview is None else self.preview


class QueueControl(Question):
    """The settings of a queue from now on; null leaves the worker's own setting."""

    concurrency: Annotated[int, Field(ge=0, le=100_000)] | None
    lease_ms: Annotated[int, Field(ge=1_000, le=86_400_000)] | None
    rate: Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)] | None


class LimitControl(Question):
    """The values of a limit from now on, whatever the code declares; null: any number."""

    concurrency: Annotated[int, Field(ge=0, le=LARGEST)] | None
    rate: Rate | None
    """Such as `10/s`, `100/min`, `1000/h` or `5000/day`."""
    burst: Annotated[int, Field(ge=1, le=LARGEST)] = 1
    """With a rate: how many may start at once after a pause."""


class SubscriptionAction(Question):
    action: Literal["pause", "resume", "replay", "skip", "release"]
    since: AwareDatetime | None = None
    after: Id | None = None
    """Of `replay`: since a time, or after an event."""
    key: Key | None = None
    """Of `release`: only this key; else everything that is parked."""
    reason: Reason | None = None
    """Of `pause`: shown wherever the pause is."""

    @model_validator(mode="after")
    def _replay_from_where(self) -> Self:
        if self.action == "replay" and (self.since is None) == (self.after is None):
            raise ValueError("a replay needs `since` or `after`, and not both")
        if self.action != "replay" and (self.since or self.after):
            raise ValueError("`since` and `after` are for replay")
        if self.action != "release" and self.key is not None:
            raise ValueError("`key` is for release")
        _check_reason(self)
        return self


def _check_reason(asked: RunnerAction | QueueAction | SubscriptionAction) -> None:
    if asked.reason is not None and asked.action != "pause":
        raise ValueError("`reason` is for pause")


class ExportSearch(Question):
    source: Word | None = None
    since: Day | None = None
    """The first day."""
    until: Day | None = None
    """The day after the last one."""
    limit: Annotated[int, Field(ge=1, le=MOST_EXPORTS)] = 200


class RetentionChange(Question):
    """How long ended rows of a family are kept. Attempts follow their jobs, and deliveries follow their events."""

    family: Literal["job_history", "job_failed", "event", "run"]
    days: Annotated[int, Field(ge=2, le=36_500)]


class Login(Question):
    token: Annotated[str, Field(min_length=1, max_length=4096)]


PATH: Mapping[str, TypeAdapter[Any]] = {
    "id": TypeAdapter(Id),
    "name": TypeAdapter(Word),
    "queue": TypeAdapter(Queue),
    "database": TypeAdapter(Word),
}
"""The type of each path parameter."""


class Nothing(Question):
    """A question without parameters."""
