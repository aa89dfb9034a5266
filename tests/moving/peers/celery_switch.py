"""The tasks of `celery_project.py` at the switch: each passes on what was sent before, with the body of the guide."""

from __future__ import annotations

import os
from typing import Any

import ported_project
import psycopg
from celery import Celery
from celery.exceptions import Reject

from holdfast import inbox

app = Celery("celery_project", broker=os.environ["CELERY_PROJECT_URL"])
app.conf.update(worker_prefetch_multiplier=1, broker_connection_retry_on_startup=True)
# By default a message of a killed worker is delivered again after an hour.
often = {"visibility_timeout": 3, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}
app.conf.update(broker_transport_options={**often, "unacked_mutex_expire": 1})


def pass_on(kind: Any) -> None:
    @app.task(
        name=f"celery_project.{kind.name}",
        bind=True,
        acks_late=True,
        reject_on_worker_lost=True,
        acks_on_failure_or_timeout=False,
        max_retries=None,
    )
    def forward(self: Any, *args: object, **kwargs: object) -> None:
        try:
            with (
                psycopg.connect(os.environ["DATABASE_URL"]) as conn,
                inbox.sync.once(conn, self.request.id, "celery") as fresh,
            ):
                if fresh:
                    ported_project.app.sync.enqueue(conn, kind.new(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - as the guide has it
            try:
                raise self.retry(exc=error, countdown=5)
            except Reject:
                raise Reject(error, requeue=True) from error


for each in ported_project.app.kinds.values():
    pass_on(each)
