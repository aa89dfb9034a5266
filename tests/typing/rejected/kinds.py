"""Every marked line is an error to both checkers, and no other line is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from holdfast import Holdfast, Job, Kind, Lease, NewJob, OrderKey, Retry, Unique

app = Holdfast()


class Welcome(BaseModel):
    to: str


@app.job("receipt.send")
async def send_receipt(job: Job[str], invoice_id: int, to: str, *, copy: bool = False) -> str:
    return f"{invoice_id} {to} {copy}"


@app.job("thumbnail")
def make_thumbnail(job: Job[str], path: str) -> int:
    return len(path)


@app.job("loose")
async def loose(job: Job[Any], row: dict[str, Any], size: int) -> str:
    return str(row) * size


@app.job("plain")
async def plain(to: str, copies: int = 1) -> str:
    return to * copies


welcome = app.declare("mail.welcome", Welcome)

send_receipt.new("1", to="a@b.c")  # rejected: wrong type
send_receipt.new(1, to=None)  # rejected: wrong type by name
send_receipt.new(1)  # rejected: missing argument
send_receipt.new()  # rejected: missing arguments
send_receipt.new(1, "a@b.c", True)  # rejected: too many by position
send_receipt.new(1, "a@b.c", cc="b@b.c")  # rejected: unknown argument
send_receipt.new(1, "a@b.c", delay=timedelta(1))  # rejected: an option is no argument
plain.new(1)  # rejected: wrong type without a job
plain.new("a", "1")  # rejected: wrong type of the second, without a job
plain.new("a", cc=1)  # rejected: unknown argument without a job
plain.new()  # rejected: missing argument without a job
make_thumbnail.new(b"path")  # rejected: wrong type, plain function
loose.new({}, "1")  # rejected: an Any beside it hides nothing
welcome.new("a@b.c")  # rejected: not the declared type
welcome.new(to="a@b.c")  # rejected: not the declared type

new = send_receipt.new(1, "a@b.c")
new.options(dely=timedelta(1))  # rejected: unknown option
new.options(delay="5")  # rejected: neither seconds nor a timedelta
Retry(base="5")  # rejected: neither seconds nor a timedelta
new.options(timedelta(1))  # rejected: by position
new.options(at="2030-01-01")  # rejected: text
new.options(priority="high")  # rejected: text
new.options(unique=7)  # rejected: neither a key nor a policy
Unique.by(7)  # rejected: not a name
new.options(headers={"a": 1})  # rejected: numbers in headers
new.options(queue=None)  # rejected: no queue
new.payload = "{}"  # rejected: frozen
Unique("k", on_conflict="ignore")  # rejected: unknown policy
Unique("k", timedelta(1))  # rejected: by position
OrderKey("k", on_failure="stop")  # rejected: unknown policy
Retry(max_attempts="3")  # rejected: text
Retry(3, timedelta(1))  # rejected: by position
Lease("60")  # rejected: neither seconds nor a timedelta

as_int: NewJob[int] = send_receipt.new(1, "a@b.c")  # rejected: returns str
as_list: NewJob[list[str]] = loose.new({}, 1)  # rejected: returns str
as_kind: Kind[[Job[str], int], str] = make_thumbnail  # rejected: other parameters


@app.job("unknown", retries=3)  # rejected: unknown setting
async def unknown(job: Job[None]) -> None: ...


@send_receipt.upgrade(from_version=1)  # rejected: not a function of a payload
def upgrade(payload: dict[str, Any]) -> str:
    return str(payload)


async def unit_test(job: Job[str]) -> None:
    send_receipt(1, "a@b.c")  # rejected: no job
    await send_receipt(job, 1)  # rejected: missing argument
    length: int = await send_receipt(job, 1, "a@b.c")  # rejected: returns str
    await make_thumbnail(job, "a")  # rejected: not async
    print(length)
