"""`holdfast rehearse`: eight kinds of broken deployments are named, and unchanged code fits. Nothing runs."""

from __future__ import annotations

import asyncio
import importlib
import sys
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.kit.commands import holdfast
from tests.kit.pace import QUICK
from tests.kit.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.commands import Output
    from tests.kit.ledger import Ledger

SHOP = """
from dataclasses import dataclass
from datetime import timedelta

from holdfast import Event, Holdfast, Job, Step

app = Holdfast()


@dataclass
class Charge:
    id: str
    amount: int


@dataclass
class Approval:
    by: str


approval = app.message("approval", Approval)
ordered = app.event("ordered", Approval)


async def charge(order: int) -> Charge:
    return Charge("c", order)


async def pick(item: int) -> list[str]:
    return [str(item)]


async def reserve(job: Job[None], order: int) -> None:
    await job.step("reserve", pick, order)


@app.job("label")
async def label(box: int) -> Charge:
    return Charge(str(box), box)


@app.job("order.fulfil", version=2)
async def fulfil(job: Job[None], order: int, to: str) -> str:
    charged = await job.step("charge", charge, order)
    for item in range(2):
        await job.step(Step("pick", key=item), pick, item)
    await reserve(job, order)
    await job.gather("labels", *[label.new(box) for box in range(2)])
    return (await job.receive(approval, timeout=timedelta(days=7))).by


@fulfil.upgrade(from_version=1)
def to_two(payload: dict) -> dict:
    return {"order": payload["order"], "to": payload["email"]}


@app.job("mail")
async def mail(to: str) -> None: ...


@app.on(ordered, name="count-orders", start="beginning")
async def count(event: Event[Approval]) -> None: ...
"""

FULFIL, COUNT = "order.fulfil", "count-orders"
# A deployment: what is replaced in the source by what, and what is reported about which kind.
BROKEN = [
    ('@app.job("mail")', '@app.job("mail.send")', "mail", "no code has a handler for this kind"),
    ("mail(to: str)", "mail(email: str)", "mail", "payload: "),
    ('payload["email"]', 'payload["mail"]', FULFIL, "payload: "),
    ("version=2", "version=3", FULFIL, "no upgrade from"),
    ('job.step("charge"', 'job.step("charged"', FULFIL, "step 'charge' is recorded"),
    ('job.step("reserve"', 'job.step("kept"', FULFIL, "step 'reserve' is recorded"),
    ("    amount: int\n", "    amount: int\n    tax: int\n", FULFIL, "result of 'charge'"),
    ('job.step("reserve", pick, order)', 'job.sleep("reserve", 3)', FULFIL, "step 'reserve' is recorded"),
    ('app.message("approval"', 'app.message("yes"', FULFIL, "waits 'approval' is recorded"),
    ('"approval", Approval', '"approval", Charge', FULFIL, "message 'approval'"),
    ('name="count-orders"', 'name="count"', COUNT, "no code declares it"),
    ("Event[Approval]", "Event[Charge]", COUNT, "payload: "),
]


def rehearsed(folder: Path, database: str, source: str, *more: str) -> Output:
    (folder / "shop.py").write_text(source)
    return holdfast("rehearse", "shop:app", *more, "--json", database=database, cwd=folder)


@pytest.fixture
def folder(tmp_path: Path, ledger: Ledger, database: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for new code, beside a database in which jobs, a story, a message and an event wait."""
    (tmp_path / "shop_before.py").write_text(SHOP)
    monkeypatch.syspath_prepend(str(tmp_path))
    shop: Any = importlib.import_module("shop_before")
    monkeypatch.delitem(sys.modules, "shop_before")
    shop.app.url = database
    story = ledger.enqueue_one(shop.fulfil.new(7, "ada"))

    async def work() -> None:
        async with shop.app.worker(**QUICK):
            await until(lambda: ledger.rows("SELECT FROM holdfast.step WHERE state = 'waits'"))
            await until(lambda: ledger.status(story) == "pending")

    asyncio.run(work())
    with psycopg.connect(database) as conn:
        shop.app.sync.enqueue(conn, shop.mail.new("ada").options(delay=3600))
        shop.app.sync.publish(conn, shop.ordered.new(shop.Approval("eve")))
    ledger.do(
        "INSERT INTO holdfast.job (created_at, available_at, later, queue, kind, payload) VALUES "
        "(now(), now() + interval '1 day', true, 'default', 'order.fulfil', '{\"order\": 1, \"email\": \"bob\"}')"
    )
    ledger.do(
        "INSERT INTO holdfast.message (job_id, sent_at, name, payload) "
        "VALUES (%s, now(), 'approval', '{\"by\": \"eve\"}')",
        story,
    )
    return tmp_path


def test_unchanged_code_fits_and_each_broken_deployment_is_named(folder: Path, ledger: Ledger, database: str) -> None:
    jobs, steps = "SELECT * FROM holdfast.job ORDER BY id", "SELECT * FROM holdfast.step ORDER BY at"
    before = [ledger.rows(jobs), [str(step) for step in ledger.rows(steps)]]
    same = rehearsed(folder, database, SHOP)
    assert (same.status, same.json["faults"], same.json["unreadable"], same.json["jobs"]) == (0, [], [], 3), same
    for old, new, kind, problem in BROKEN:
        assert old in SHOP
        found = rehearsed(folder, database, SHOP.replace(old, new, 1))
        assert found.status == 1, new
        faults = found.json["faults"]
        assert any(fault["kind"] == kind and problem in fault["problem"] for fault in faults), (new, faults)
        assert all(fault["ids"] for fault in faults)
    assert [ledger.rows(jobs), [str(step) for step in ledger.rows(steps)]] == before


def test_a_schedule_without_a_handler_is_named(folder: Path, ledger: Ledger, database: str) -> None:
    ledger.do(
        "INSERT INTO holdfast.schedule (name, what, schedule, job) VALUES ('nightly', 'job', 'every 60s', %s::json)",
        '{"kind": "report", "payload": {}}',
    )
    found = rehearsed(folder, database, SHOP)
    (fault,) = found.json["faults"]
    assert (found.status, fault["kind"], fault["ids"]) == (1, "report", ["schedule nightly"])


def test_a_computed_name_is_listed_and_not_guessed(folder: Path, database: str) -> None:
    found = rehearsed(folder, database, SHOP.replace('job.step("charge"', "job.step(f'{order}'"))
    assert found.status == 0
    (line,) = found.json["unreadable"]
    assert line.startswith("order.fulfil, line ")
    shown = holdfast("rehearse", "shop:app", database=database, cwd=folder)
    assert "Not readable: order.fulfil, line " in shown.out
    assert shown.out.endswith("3 waiting jobs read: all of it fits.\n")


def test_kinds_of_another_application_are_known_if_it_is_given(folder: Path, database: str) -> None:
    head = 'from holdfast import Holdfast\n\napp = Holdfast()\n\n@app.job("mail")\n'
    (folder / "post.py").write_text(f"{head}async def mail(to: str): ...\n")
    found = rehearsed(folder, database, SHOP.replace('@app.job("mail")', '@app.job("mail.send")'), "post:app")
    assert (found.status, found.json["faults"]) == (0, [])
