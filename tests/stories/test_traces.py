"""Each step that runs is a span inside of its attempt; what an earlier attempt has recorded is none."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from holdfast import Holdfast, Job, Step
from holdfast.telemetry import instrument
from tests.kit.pace import AT_ONCE, QUICK, ms
from tests.kit.waiting import until

if TYPE_CHECKING:
    from tests.kit.ledger import Ledger


async def charge(order: int) -> int:
    return order


async def decline() -> None:
    raise LookupError("declined")


@pytest.mark.parametrize("plain", [False, True])
async def test_a_span_for_each_step_that_runs(app: Holdfast, ledger: Ledger, plain: bool) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrument(app, tracer_provider=provider)

    @app.job("label")
    async def label(box: int) -> int:
        return box

    @app.job("story", retry=AT_ONCE)
    async def story(job: Job[Any]) -> None:
        await job.step("charge", charge, 7)
        await job.sleep("nap", ms(10))
        with pytest.raises(LookupError):
            await job.step("decline", decline)
        await asyncio.gather(*[job.step(Step("part", key=n), charge, n) for n in range(2)])
        await job.gather("labels", label.new(1))

    @app.job("plain story", retry=AT_ONCE)
    def plain_story(job: Job[Any]) -> None:
        job.sync.step("charge", int, 7)
        job.sync.sleep("nap", ms(10))
        job.sync.gather("labels", label.new(1))

    made = ledger.enqueue_one((plain_story if plain else story).new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(made) == "completed")
    spans = exporter.get_finished_spans()
    attempts = {span.context.span_id: span for span in spans if span.name.startswith("holdfast.attempt")}
    steps = [span for span in spans if span.name.startswith("holdfast.step")]
    ran = ["charge", "nap", "labels"] if plain else ["charge", "nap", "decline", "part", "part", "labels"]
    # The look for the children of a gather is one more, in the attempt after the suspension.
    assert sorted(name_of(span) for span in steps) == sorted([*ran, "labels"])
    assert all(span.parent is not None and span.parent.span_id in attempts for span in steps)
    assert {name_of(span) for span in steps if span.status.status_code is StatusCode.ERROR} == set(ran) & {"decline"}
    assert {(span.attributes or {}).get("holdfast.step.key") for span in steps} == (
        {None} if plain else {None, "0", "1"}
    )
    assert len([span for span in attempts.values() if "story" in span.name]) == 3


def name_of(span: ReadableSpan) -> str:
    return span.name.removeprefix("holdfast.step ")
