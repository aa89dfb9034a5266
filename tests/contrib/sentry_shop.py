"""An application that reports to Sentry. It is copied to a folder of its own, and imported there by a worker."""

from __future__ import annotations

import os
from datetime import timedelta

import sentry_sdk

from holdfast import Fail, Holdfast, Job
from holdfast._model.retry import Retry
from holdfast.contrib.sentry import report_to_sentry

# Sentry would enable an integration for every library in the environment of the tests, which takes seconds to import.
sentry_sdk.init(os.environ["SHOP_SENTRY"], release="shop@1", auto_enabling_integrations=False)
app = Holdfast()
report_to_sentry(app, every_attempt=bool(os.environ.get("SHOP_TELLS_ALL")))
AT_ONCE = Retry(base=timedelta(0), jitter=timedelta(0))


@app.job("charge", retry=AT_ONCE)
async def charge(job: Job[None]) -> None:
    try:
        reach_broker()
    except ConnectionError as error:
        raise LookupError("no card, password=hunter2") from error


def reach_broker() -> None:
    raise ConnectionError("cannot reach amqp://shop:hunter2@broker")


@app.job("refuse")
async def refuse(job: Job[None]) -> None:
    raise Fail("sold out")


@app.job("die")
async def die(job: Job[None]) -> None:
    os._exit(3)
