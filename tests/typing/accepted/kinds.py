"""Valid code about kinds and jobs; both checkers agree with every type stated here."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, assert_type

from pydantic import BaseModel
from typing_extensions import TypedDict

from holdfast import Busy, DeclaredKind, Fail, Holdfast, Job, Kind, Lease, NewJob, OrderKey, Reschedule, Retry, Unique

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


@dataclass
class State:
    mailer: str


@asynccontextmanager
async def resources(app: Holdfast) -> AsyncGenerator[State, None]:
    yield State(mailer=app.url)


app = Holdfast("postgresql://", lifespan=resources)


@app.job(
    "receipt.send",
    queue="mail",
    priority=3,
    retry=Retry(max_attempts=5, base=timedelta(seconds=10), maximum=600),
    lease=60,
    max_runtime=timedelta(minutes=10),
    version=2,
)
async def send_receipt(job: Job[State], invoice_id: int, to: str, *, copy: bool = False) -> str:
    assert_type(job.state.mailer, str)
    return f"{job.idempotency_key} {invoice_id} {to} {copy}"


@app.job("thumbnail")
def make_thumbnail(job: Job[State], path: str) -> int:
    return len(path)


@app.job("poll")
async def poll(job: Job[State], url: str) -> str | Reschedule | Fail | Busy:
    if not url:
        return Fail("no address")
    if job.attempt > 1:
        return Busy(timedelta(seconds=1))
    return url if job.id else Reschedule(timedelta(minutes=1))


@app.job("poll.sync", lease=Lease.external, retry=Retry.table([timedelta(minutes=1), 300, 0.5], max_attempts=4))
def poll_in_thread(job: Job[State]) -> int | Reschedule | Retry.again:
    return 1 if job.id else Retry.again(60)


@app.job("loose")
async def loose(job: Job[Any], row: dict[str, Any], size: int) -> list[Any]:
    return [row, size]


@app.job("nothing")
async def nothing(job: Job[State]) -> None: ...


@app.job("maybe")
async def maybe(job: Job[Any]) -> str | None:
    return None


assert_type(send_receipt.new(1, "a@b.c"), NewJob[str])
assert_type(send_receipt.new(1, to="a@b.c", copy=True), NewJob[str])
assert_type(make_thumbnail.new("a"), NewJob[int])
assert_type(poll.new("a"), NewJob[str])
assert_type(poll_in_thread.new(), NewJob[int])
assert_type(nothing.new(), NewJob[None])
assert_type(maybe.new(), NewJob[str | None])
assert_type(loose.new({}, 1), NewJob[list[Any]])


@app.job("plain.send")
async def send_plain(to: str, *, copies: int = 1) -> str:
    return to * copies


@app.job("plain.thumbnail", executor="process")
def make_plain(path: str, size: Any) -> int:
    return len(path)


@app.job("plain.nothing")
async def nothing_plain() -> None: ...


assert_type(send_plain.new("a@b.c", copies=2), NewJob[str])
assert_type(make_plain.new("a", 1), NewJob[int])
assert_type(nothing_plain.new(), NewJob[None])
assert_type(make_plain("a", 1), int)

kind: Kind[[Job[State], str], int] = make_thumbnail

later: NewJob[str] = send_receipt.new(1, "a@b.c").options(
    delay=timedelta(hours=1),
    priority=1,
    queue="slow",
    order_key=OrderKey("customer:7", on_failure="block"),
    unique=Unique("boss:1", window=timedelta(hours=1), on_conflict="replace"),
    expires=timedelta(days=1),
    headers={"tenant": "a"},
    max_attempts=7,
)
assert_type(later.options(delay=90, expires=3600.5, unique=Unique("boss:1", window=60)), NewJob[str])
assert_type(Retry(base=10).base, timedelta)
assert_type(later.options(unique="boss:1"), NewJob[str])
assert_type(later.options(unique=Unique.by("invoice_id", window=60)), NewJob[str])
assert_type(later.options(at=datetime.now(UTC), delay=None, order_key="plain", expires=datetime.now(UTC)), NewJob[str])
wider: NewJob[object] = later


@send_receipt.upgrade(from_version=1)
def rename(payload: dict[str, Any]) -> dict[str, Any]:
    return {**payload, "to": payload["address"]}


class WelcomeModel(BaseModel):
    to: str


@dataclass
class WelcomeData:
    to: str


class WelcomeDict(TypedDict):
    to: str


mail_welcome = app.declare("mail.welcome", WelcomeModel, queue="mail", max_attempts=9)
assert_type(mail_welcome, DeclaredKind[WelcomeModel])
assert_type(mail_welcome.new(WelcomeModel(to="a@b.c")), NewJob[object])
app.declare("mail.data", WelcomeData).new(WelcomeData("a@b.c"))
app.declare("mail.dict", WelcomeDict).new({"to": "a@b.c"})


async def unit_test() -> None:
    job = Job(id=1, kind="receipt.send", state=State("smtp"))
    assert_type(await send_receipt(job, 1, to="a@b.c"), str)
    assert_type(make_thumbnail(job, "a"), int)
    assert_type(await poll(job, "a"), str | Reschedule | Fail | Busy)
    await nothing(job)
