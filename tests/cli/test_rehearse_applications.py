"""`holdfast rehearse` with the applications of the repository: eight kinds of broken deployments of each are named."""

from __future__ import annotations

import asyncio
import importlib
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import pytest

from holdfast._demo import shop
from tests.kit.commands import holdfast
from tests.kit.pace import QUICK
from tests.kit.waiting import until

if TYPE_CHECKING:
    from tests.kit.commands import Output
    from tests.kit.ledger import Ledger

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
# What each application gets beside its own jobs: a story, and a subscription.
STORY = """
from dataclasses import dataclass as dataclass_of_story

from holdfast import Event, Job


@dataclass_of_story
class Box:
    id: str
    weight: int


@dataclass_of_story
class Consent:
    by: str


consent = app.message("consent", Consent)
asked = app.event("asked", Consent)


async def weigh(order: int) -> Box:
    return Box("p", order)


@app.job("box.send", version=2)
async def send_box(job: Job[None], order: int, to: str) -> str:
    await job.step("weigh", weigh, order)
    return (await job.receive(consent)).by


@send_box.upgrade(from_version=1)
def to_two(payload: dict) -> dict:
    return {"order": payload["order"], "to": payload["email"]}


@app.on(asked, name="count-asked", start="beginning")
async def count_asked(event: Event[Consent]) -> None: ...
"""
SENDS = "box.send"
BROKEN = [
    ('payload["email"]', 'payload["mail"]', SENDS, "payload: "),
    ('"box.send", version=2', '"box.send", version=3', SENDS, "no upgrade from"),
    ('job.step("weigh"', 'job.step("weighed"', SENDS, "step 'weigh' is recorded"),
    ("    weight: int\n", "    weight: int\n    fragile: bool\n", SENDS, "result of 'weigh'"),
    ('app.message("consent"', 'app.message("yes"', SENDS, "waits 'consent' is recorded"),
    ('name="count-asked"', 'name="asked"', "count-asked", "no code declares it"),
]


class Application(NamedTuple):
    """An application, one of its own jobs, and two changes that break it: another kind, and another payload."""

    source: Path
    """The folder of its package, or its only module."""
    module: str
    """The file with the job."""
    app: str
    kind: str
    payload: str
    parameter: tuple[str, str]

    def broken(self) -> list[tuple[str, str, str, str]]:
        renamed = (f'"{self.kind}"', f'"{self.kind}.now"', self.kind, "no code has a handler for this kind")
        return [renamed, (*self.parameter, self.kind, "payload: "), *BROKEN]


APPLICATIONS = {
    "shop": Application(
        Path(shop.__file__), "shop.py", "shop:app", "order.charge", '{"order": 7, "items": 1, "amount": 3}',
        ("items: int, amount: int", "items: int, cents: int"),
    ),
    "invoicing": Application(
        EXAMPLES / "invoicing" / "invoicing", "invoicing/jobs.py", "invoicing.jobs:app", "invoice.email.requested",
        '{"invoice_id": 7}', ("send_invoice(job: Job[Services],", "send_invoice(job: Job[Services], language: str,"),
    ),
    "tenders": Application(
        EXAMPLES / "tenders" / "tenders", "tenders/chain.py", "tenders.app:app", "delivery.receipt", '{"delivery": 7}',
        ("    delivery: int\n", "    delivery_id: int\n"),
    ),
}  # fmt: skip


@pytest.fixture
def waiting(tmp_path: Path, ledger: Ledger, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A story, an older job of its kind, and an event wait in the database."""
    (tmp_path / "story_before.py").write_text(f"from holdfast import Holdfast\n\napp = Holdfast()\n{STORY}")
    monkeypatch.syspath_prepend(str(tmp_path))
    shop_before: Any = importlib.import_module("story_before")
    monkeypatch.delitem(sys.modules, "story_before")
    shop_before.app.url = database
    job = ledger.enqueue_one(shop_before.send_box.new(7, "ada"))

    async def work() -> None:
        async with shop_before.app.worker(**QUICK):
            await until(lambda: ledger.rows("SELECT FROM holdfast.step WHERE state = 'waits'"))
            await until(lambda: ledger.status(job) == "pending")

    asyncio.run(work())
    with psycopg.connect(database) as conn:
        shop_before.app.sync.publish(conn, shop_before.asked.new(shop_before.Consent("eve")))
    wait(ledger, SENDS, '{"order": 1, "email": "bob"}')


def wait(ledger: Ledger, kind: str, payload: str) -> None:
    columns = "created_at, available_at, queue, kind, payload"
    ledger.do(f"INSERT INTO holdfast.job ({columns}) VALUES (now(), now(), 'q', %s, %s::json)", kind, payload)


@pytest.mark.nightly(daily=["shop"])
@pytest.mark.usefixtures("waiting")
@pytest.mark.parametrize("name", [*APPLICATIONS])
def test_eight_kinds_of_broken_deployments_are_named_and_none_of_unchanged_code(
    tmp_path: Path, ledger: Ledger, database: str, name: str
) -> None:
    application = APPLICATIONS[name]
    wait(ledger, application.kind, application.payload)
    folder = tmp_path / "release"
    if application.source.is_dir():
        shutil.copytree(application.source, folder / name, ignore=shutil.ignore_patterns("tests", "__pycache__"))
    else:
        folder.mkdir()
        shutil.copy(application.source, folder)
    module = folder / application.module
    source = module.read_text() + STORY

    def rehearsed(text: str) -> Output:
        module.write_text(text)
        # Of two texts of the same second and length, Python would take the second one's bytecode for that of the first.
        shutil.rmtree(module.parent / "__pycache__", ignore_errors=True)
        return holdfast("rehearse", application.app, "--json", database=database, cwd=folder)

    same = rehearsed(source)
    assert (same.status, same.json["faults"], same.json["unreadable"], same.json["jobs"]) == (0, [], [], 3), same
    broken = application.broken()
    assert len(broken) == 8
    for old, new, kind, problem in broken:
        assert old in source, old
        found = rehearsed(source.replace(old, new))
        assert found.status == 1, new
        faults = found.json["faults"]
        assert {fault["kind"] for fault in faults} == {kind}, faults
        assert any(problem in fault["problem"] and fault["ids"] for fault in faults), (new, faults)
