"""`flask holdfast`, and the context that handlers have."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from tests.kit.commands import Running
from tests.kit.ledger import Ledger
from tests.sites.serving import command

if TYPE_CHECKING:
    from pathlib import Path

FACTORY = """
import logging

from flask import Flask, current_app, g
from holdfast import Holdfast, Job
from holdfast.contrib.flask import init_app

app = Holdfast()
log = logging.getLogger("factory")


@app.job("plain")
def plain(job: Job[None]) -> str:
    return look()


@app.job("async")
async def other(job: Job[None]) -> str:
    return look()


def look() -> str:
    g.looked = True
    return current_app.config["GREETING"]


def create_app(greeting: str) -> Flask:
    log.warning("created")
    web = Flask(__name__)
    web.config["GREETING"] = greeting
    web.teardown_appcontext(lambda _: log.warning("torn down: %s", g.get("looked")))
    init_app(web, app)
    return web
"""


def test_handlers_of_every_process_have_the_applications_context(tmp_path: Path, database: str) -> None:
    (tmp_path / "factory.py").write_text(FACTORY)
    running = Running(
        "worker",
        "--processes",
        "1",
        program=["-m", "flask", "--app", "factory:create_app('hello')", "holdfast"],
        database=database,
        cwd=tmp_path,
    )
    with running, Ledger(database) as ledger:
        running.wait_for_line("worker started")
        for kind in ("plain", "async"):
            ledger.do("SELECT holdfast.enqueue(kind => %s)", kind)
            running.wait_for_line("torn down: True")
        running.signal(signal.SIGTERM)
        assert running.ended() == 0
        assert ledger.rows("SELECT result #>> '{}' FROM holdfast.job_history") == [("hello",)] * 2
        created = [message for message in running.messages() if "created" in message]
        assert len(created) == 2, "once in the parent, once in the child"


def test_it_answers_as_holdfast_does(database: str) -> None:
    flask = ("-m", "flask", "--app", "shop", "holdfast")
    wrong = command("flask_site", *flask, "jobs", "list", "--limit", "0", database=database)
    assert (wrong.status, "--limit: expected a number from 1 to 1000, got '0'" in wrong.err) == (2, True), wrong
    helped = command("flask_site", *flask, "--help", database=database)
    assert (helped.status, "run jobs until stopped" in helped.out) == (0, True)
