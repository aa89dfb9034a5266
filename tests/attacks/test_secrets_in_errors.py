"""A handler's error quotes secrets. Nobody who reads rows, logs, traces or pages finds them."""

from __future__ import annotations

import io
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast, Job, Retry
from holdfast._logs import log as logs
from holdfast._ops.service import Service
from tests.kit.pace import PATIENT
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kit.ledger import Ledger

SECRET = "s3cr3t-hunter2"  # noqa: S105 - what must not appear
TEXT = (
    f"POST https://hooks.slack.com/services/T0/B0/{SECRET} failed: api_key={SECRET} token={SECRET} pwd={SECRET} "
    f"Authorization: Bearer {SECRET} {{'cookie': 'sid={SECRET}', 'aws_secret_access_key': '{SECRET}'}} "
    f"amqp://me:{SECRET}@mq/ proxy-authorization: Basic {SECRET} and Bearer {SECRET}"
)


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    stream, root = io.StringIO(), logging.getLogger()
    level = root.level
    handler = logs.configure("json", "debug", stream)
    yield stream
    root.removeHandler(handler)
    root.setLevel(level)


async def test_an_error_text_is_masked_in_rows_logs_and_pages(
    app: Holdfast, ledger: Ledger, stream: io.StringIO
) -> None:
    @app.job("pay", retry=Retry(max_attempts=1))
    async def pay(job: Job[None], note: str) -> None:
        raise ConnectionError(TEXT)

    job = ledger.enqueue_one(pay.new(f"call with token={SECRET}"))
    async with app.worker(**PATIENT):
        await until(lambda: ledger.status(job) == "failed")
        await until(lambda: "ConnectionError" in stream.getvalue())
    stored = ledger.rows("SELECT last_error FROM holdfast.job_failed UNION ALL SELECT error FROM holdfast.attempt")
    assert stored
    assert SECRET not in str(stored)
    assert "api_key=***" in str(stored)
    assert SECRET not in stream.getvalue()
    async with Service(app.url) as service:
        story = await service.job(job)
    assert SECRET not in story.model_dump_json()
    assert story.redacted


async def test_a_row_written_outside_the_library_is_masked_when_shown(app: Holdfast, ledger: Ledger) -> None:
    ledger.do("SELECT holdfast.enqueue('pay', '{}')")
    ledger.do("UPDATE holdfast.job SET last_error_code = 'Odd', last_error = %s", TEXT)
    async with Service(app.url) as service:
        story = await service.job(ledger.value("SELECT id FROM holdfast.job"))
    assert SECRET not in json.dumps(story.model_dump(mode="json"))
    shown: Any = story.error
    assert "token=***" in shown
