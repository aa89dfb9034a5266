"""Agents of pydantic-ai whose requests and tool calls are steps of a job."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic_ai import Agent, ModelResponse, ModelRetry, RunContext, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings

from holdfast import Holdfast, Job, Retry, Step
from holdfast.contrib.pydantic_ai import HoldfastDurability, StepOptions, durable
from holdfast.testing import Testing
from tests.kit.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models.function import AgentInfo

    from tests.kit.ledger import Found

SOON = Retry(max_attempts=3, base=timedelta(0), jitter=timedelta(0))


@dataclass
class Script:
    """A model that calls these tools, one set of calls in each response, and then answers."""

    calls: list[list[ToolCallPart]]
    log: list[str] = field(default_factory=list)
    """What was really called, in its order."""
    fails: int = 0
    """How many requests fail at first."""

    def __call__(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        turn = sum(isinstance(message, ModelResponse) for message in messages)
        self.log.append(f"request {turn}")
        if self.fails:
            self.fails -= 1
            raise TimeoutError("the model did not answer")
        return ModelResponse(parts=[*self.calls[turn]] if turn < len(self.calls) else [TextPart(f"{turn} turns")])


@pytest.fixture
def app(database: str) -> Holdfast:
    return Holdfast(database)


@pytest.fixture
def ledger(database: str) -> Iterator[Ledger]:
    with Ledger(database) as ledger:
        yield ledger


def look(*orders: int) -> list[ToolCallPart]:
    return [ToolCallPart("look", {"order": order}, tool_call_id=f"look {order}") for order in orders]


def agent_of(script: Script, **options: Any) -> Agent[Job[Any], str]:
    agent = Agent(
        FunctionModel(script), name="support", deps_type=Job[Any], capabilities=[HoldfastDurability(**options)]
    )

    @agent.tool
    async def look(ctx: RunContext[Job[Any]], order: int) -> str:
        script.log.append(f"look {order}")
        return f"order {order} of {ctx.tool_call_id}"

    return agent


async def drained(app: Holdfast, ledger: Ledger, agent: Agent[Job[Any], str], **options: Any) -> Found:
    """Run a job that runs the agent, until nothing is due, and return how it ended."""

    @app.job("ask", retry=SOON)
    async def ask(job: Job[Any], question: str) -> str:
        with durable(job):
            return (await agent.run(question, deps=job)).output

    job = ledger.enqueue_one(ask.new("Where is my order?"))
    async with await psycopg.AsyncConnection.connect(app.url, autocommit=True) as conn:
        drained = await Testing(app, conn).drain(raise_errors=False, **options)
    assert ("crash_after" in options) == bool(drained.released)
    return ledger.job(job)


LOOK = "support__function_toolset__<agent>.call_tool:look"


@pytest.mark.parametrize("step", ["support__model.request", LOOK], ids=["request", "tool"])
async def test_what_is_recorded_is_not_called_again(app: Holdfast, ledger: Ledger, step: str) -> None:
    script = Script([look(7, 8)])
    found = await drained(app, ledger, agent_of(script), crash_after=step)
    assert (found.status, found.result) == ("completed", "1 turns")
    assert script.log == ["request 0", "look 7", "look 8", "request 1"]


async def test_a_request_that_failed_is_made_again_by_the_next_attempt(app: Holdfast, ledger: Ledger) -> None:
    script = Script([look(7)], fails=1)
    found = await drained(app, ledger, agent_of(script))
    assert (found.status, found.result) == ("completed", "1 turns")
    assert script.log == ["request 0", "request 0", "look 7", "request 1"]


async def test_a_request_has_as_many_attempts_as_its_options_say(app: Holdfast, ledger: Ledger) -> None:
    script = Script([], fails=1)
    found = await drained(app, ledger, agent_of(script, model=StepOptions(attempts=2)))
    assert (found.attempt, found.result) == (1, "0 turns")
    assert script.log == ["request 0", "request 0"]


async def test_the_options_of_a_tool_are_those_of_its_metadata(app: Holdfast, ledger: Ledger) -> None:
    script = Script([[ToolCallPart("fragile", {})]])
    agent = agent_of(script, tool=StepOptions(attempts=2, timeout=60))

    @agent.tool_plain(metadata={"holdfast": StepOptions(attempts=3)})
    async def fragile() -> str:
        script.log.append("fragile")
        if script.log.count("fragile") < 3:
            raise OSError("the service is down")
        return "fine"

    found = await drained(app, ledger, agent)
    assert (found.attempt, found.result) == (1, "1 turns")
    assert script.log.count("fragile") == 3


async def test_metadata_that_is_no_option_is_refused(app: Holdfast, ledger: Ledger) -> None:
    agent = agent_of(Script([[ToolCallPart("odd", {})]]))

    @agent.tool_plain(metadata={"holdfast": True})
    async def odd() -> str:
        raise AssertionError

    found = await drained(app, ledger, agent)
    assert found.error == "tool 'odd': metadata 'holdfast': expected StepOptions or False, got True"


async def test_that_a_tool_asks_the_model_to_try_again_is_recorded(app: Holdfast, ledger: Ledger) -> None:
    script = Script([[ToolCallPart("picky", {"word": "a"})], [ToolCallPart("picky", {"word": "b"})]])
    agent = agent_of(script)

    @agent.tool_plain
    async def picky(word: str) -> str:
        script.log.append(f"picky {word}")
        if word == "a":
            raise ModelRetry("not that word")
        return "fine"

    found = await drained(app, ledger, agent, crash_after="support__function_toolset__<agent>.call_tool:picky")
    assert found.status == "completed"
    assert script.log == ["request 0", "picky a", "request 1", "picky b", "request 2"]


async def test_only_a_tool_that_is_no_step_has_the_verbs_of_the_job(app: Holdfast, ledger: Ledger) -> None:
    async def write(word: str) -> str:
        script.log.append(word)
        return word

    async def tool(ctx: RunContext[Job[Any]]) -> str:
        return await ctx.deps.step(Step("write", key=ctx.tool_call_id), write, "written")

    script = Script([[ToolCallPart("wrapped", {})]])
    agent = agent_of(script)
    agent.tool(name="wrapped")(tool)
    found = await drained(app, ledger, agent)
    assert found.error is not None
    assert "a step has no steps of its own" in found.error

    script = Script([[ToolCallPart("free", {})]])
    agent = agent_of(script)
    agent.tool(name="free", metadata={"holdfast": False})(tool)
    found = await drained(Holdfast(app.url), ledger, agent, crash_after="write")
    assert found.status == "completed"
    assert script.log == ["request 0", "written", "request 1"]


async def test_an_agent_that_a_tool_runs_is_a_part_of_its_step(app: Holdfast, ledger: Ledger) -> None:
    inner = agent_of(other := Script([]))
    script = Script([[ToolCallPart("delegate", {})]])
    agent = agent_of(script)

    @agent.tool
    async def delegate(ctx: RunContext[Job[Any]]) -> str:
        return (await inner.run("Do it.", deps=ctx.deps)).output

    found = await drained(app, ledger, agent, crash_after="support__function_toolset__<agent>.call_tool:delegate")
    assert (found.status, found.result) == ("completed", "1 turns")
    assert (script.log, other.log) == (["request 0", "request 1"], ["request 0"])


async def test_tools_are_called_one_after_the_other(app: Holdfast, ledger: Ledger) -> None:
    script = Script([[ToolCallPart("slow", {"n": n}) for n in range(3)]])
    agent = agent_of(script)
    running: list[int] = []

    @agent.tool_plain
    async def slow(n: int) -> int:
        running.append(n)
        await asyncio.sleep(0)
        assert running == [n]
        running.remove(n)
        return n

    found = await drained(app, ledger, agent)
    assert (found.status, found.result) == ("completed", "1 turns")


async def test_outside_of_a_job_an_agent_records_nothing(app: Holdfast, ledger: Ledger) -> None:
    script = Script([look(7)])
    agent = agent_of(script)
    job: Job[Any] = Job(id=1, kind="ask", state=None)
    assert (await agent.run("Where is my order?", deps=job)).output == "1 turns"
    assert ledger.value("SELECT count(*) FROM holdfast.step") == 0


async def test_every_attempt_gives_a_run_its_ids_and_its_deadline(app: Holdfast, ledger: Ledger) -> None:
    agent, seen = agent_of(Script([])), []

    @app.job("ask", retry=SOON)
    async def ask(job: Job[Any]) -> None:
        for _ in range(2):
            with durable(job):
                run = await agent.run("Where is my order?", deps=job, timeout=60)
            seen.append((run.run_id, run.conversation_id))
        if len(seen) == 2:
            raise OSError

    ledger.enqueue_one(ask.new())
    async with await psycopg.AsyncConnection.connect(app.url, autocommit=True) as conn:
        await Testing(app, conn).drain(raise_errors=False)
    assert seen[:2] == seen[2:]
    assert len(set(seen)) == 2
    [[journal]] = ledger.rows("SELECT steps FROM holdfast.job_history")
    started = [step["result"] for step in journal if step["name"] == "support__run_start_time"]
    assert [datetime.fromisoformat(text).tzinfo for text in started] == [UTC, UTC]


async def test_what_is_not_called_again_has_no_second_span(app: Holdfast, ledger: Ledger) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    script = Script([look(7, 8)])
    agent = agent_of(script)
    agent.instrument = InstrumentationSettings(tracer_provider=provider)
    await drained(app, ledger, agent, crash_after=LOOK)
    names = [span.name for span in exporter.get_finished_spans()]
    assert sum(name.startswith("chat") for name in names) == 2, names
