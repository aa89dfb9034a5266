"""The shop in three databases: a worker serves two of them, and the server of the third is stopped."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg

from tests.browser import shop
from tests.browser.live import APP, PACE, Site, serving, until
from tests.browser.process import Process
from tests.kit.databases import clone

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tools.nats import NatsServer
    from tools.postgres import Server

NAMES = ("eu", "us", "asia")


@dataclass(frozen=True)
class Fleet:
    site: Site
    databases: dict[str, psycopg.Connection[Any]]
    """A connection to each database that answers, by name."""
    stopped: Server
    """The server of `asia`."""


@contextmanager
def open_fleet(server: Server, template: str, stopped: Server, nats: NatsServer, folder: Path) -> Iterator[Fleet]:
    """Open the shop in `eu` and in `us`, and serve the pages of all three. `us` is draining.

    `stopped`: a stopped server whose database has been migrated.
    """
    with ExitStack() as stack:
        urls = {name: stack.enter_context(clone(server, template)) for name in NAMES[:2]}
        conns = {name: stack.enter_context(psycopg.connect(url, autocommit=True)) for name, url in urls.items()}
        for conn in conns.values():
            conn.execute("CREATE TABLE outage (bank text PRIMARY KEY, why text NOT NULL)")
        file = folder / "databases.toml"
        lines = [f'eu = "{urls["eu"]}"', f'us = {{ url = "{urls["us"]}", draining = true }}']
        file.write_text("\n".join([*lines, f'asia = "{stopped.url(template)}"']))
        listed = {"HOLDFAST_DATABASES_FILE": str(file)}
        worker = stack.enter_context(
            Process("worker", APP, database="", log=folder / "worker.log", SHOP_NATS_URL=nats.url, **PACE, **listed)
        )
        site = stack.enter_context(serving(urls["eu"], folder, more=listed))
        working = "SELECT true FROM holdfast.worker WHERE reaped_at IS NOT NULL"
        until(lambda: all(conn.execute(working).fetchone() for conn in conns.values()), f"it works: {worker.errors}")
        yield Fleet(site, conns, stopped)


def work(fleet: Fleet) -> None:
    """Let jobs complete, fail, run and wait: more of them in `eu`, and dead letters in `us`."""
    eu, us = fleet.databases["eu"], fleet.databases["us"]
    us.execute("INSERT INTO outage VALUES ('Meridian', '504 Gateway Timeout')")
    with us.transaction():
        shop.app.sync.enqueue_many(us, [shop.charge_card.new(number, "Meridian") for number in range(3)])
    with eu.transaction():
        points = [shop.add_points.new(shop.Points(f"customer{number}", 5)) for number in range(14)]
        mails = [shop.send_mail.new(f"a{number}@example.org") for number in range(20)]
        shop.app.sync.enqueue_many(eu, [*points, *mails, shop.build_report.new("yearly", 900.0)])
    failed = "SELECT count(*) FROM holdfast.job_failed"
    until(lambda: us.execute(failed).fetchone() == (3,), "three dead letters in us")
    left = "SELECT count(*) FROM holdfast.job WHERE kind = 'mail.send'"
    until(lambda: eu.execute(left).fetchone() == (0,), "all mails are sent in eu")
