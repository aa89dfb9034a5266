"""The operations of pydantic-ai's agents as steps of a job."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from holdfast._distribution import needed
from holdfast._model.step import Step

with needed("holdfast.contrib.pydantic_ai", "pydantic-ai"):
    from pydantic_ai.durable_exec import (
        JSON_CODEC,
        BaseDurabilityCapability,
        DurabilityEngineSpec,
        JournalCallableOperationBackend,
        RoleBasedOperationConfig,
        conversation_id_from_run_id,
        record_durable_unit,
        replay_scope,
    )
    from pydantic_ai.exceptions import UserError
    from pydantic_ai.tools import AgentDepsT
    from pydantic_ai.toolsets import ToolsetTool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from pydantic_ai.agent import EventStreamHandler
    from pydantic_ai.durable_exec import DurableOperationId
    from pydantic_ai.models import Model

    from holdfast._model.duration import Duration
    from holdfast._model.job import Job
_METADATA = "holdfast"
_KINDS: frozenset[Literal["function", "mcp", "dynamic"]] = frozenset({"function", "mcp", "dynamic"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """Options of the steps of model requests or tool calls: those of `Step`."""

    attempts: int = 1
    """The number of calls before a failure reaches the agent, 1 to 100. Default: 1."""
    timeout: Duration | None = None
    """Of each call, in seconds or a timedelta. Default: none."""


_current: ContextVar[Job[Any] | None] = ContextVar("holdfast_agents", default=None)


@contextmanager
def durable(job: Job[Any]) -> Iterator[None]:
    """Make the runs of agents inside of it steps of this job, if they have `HoldfastDurability`.

    >>> agent = Agent(model, name="support", capabilities=[HoldfastDurability()])  # doctest: +SKIP
    >>> with durable(job):  # doctest: +SKIP
    ...     answer = (await agent.run("Where is my order?")).output
    """
    with replay_scope(), _running_in(job):
        yield


@contextmanager
def _running_in(job: Job[Any] | None) -> Iterator[None]:
    token = _current.set(job)
    try:
        yield
    finally:
        _current.reset(token)


def _numbered(job: Job[Any], name: str, options: StepOptions | None = None) -> Step:
    """Return the next step of this name: every attempt counts alike, because everything that decides is recorded."""
    at = job._steps.ordinal(name)  # noqa: SLF001 - of the worker that runs the job
    if options is None:
        return Step(name, key=at)
    return Step(name, key=at, attempts=options.attempts, timeout=options.timeout, returns=object)


class _Backend(JournalCallableOperationBackend[StepOptions]):
    async def execute(
        self,
        *,
        operation_id: DurableOperationId,  # noqa: ARG002 - the name has all of it
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],  # noqa: ARG002 - a step is found by its name
        config: StepOptions,
    ) -> object:
        job, called = _current.get(), False
        if job is None:
            return await body()

        async def call() -> object:
            nonlocal called
            called = True
            with _running_in(None):  # a step has no steps of its own: an agent that a tool runs is part of its step
                return await body()

        result = await job.step(_numbered(job, name, config), call)
        record_durable_unit(executed=called)
        return result


@dataclass(init=False, kw_only=True)
class HoldfastDurability(BaseDurabilityCapability[AgentDepsT]):
    """A capability of an agent whose model requests and tool calls are steps, inside of `durable(job)`.

    Outside of it, the agent runs as any other. The agent needs a `name`: steps are found by it. Tools are called one
    after the other. A tool with `metadata={"holdfast": False}` is no step: it may call the verbs of the job, such as
    `step_on`. With `metadata={"holdfast": StepOptions(…)}` its step has options of its own.
    """

    engine_spec: ClassVar[DurabilityEngineSpec] = DurabilityEngineSpec(
        engine_name="Holdfast",
        durable_unit_noun="step",
        durable_container_noun="job",
        codec=JSON_CODEC,
        wrapped_toolset_kinds=_KINDS,
        toolset_lifecycles={"function": "enter-always", "mcp": "enter-in-durable-unit", "dynamic": "enter-never"},
        unsupported_runtime_toolset_kinds=_KINDS,
        # Their steps are counted, so all attempts must call them in the same order.
        sequential_tools_in_durable_context=True,
        tool_config_key=_METADATA,
    )

    def __init__(
        self,
        *,
        models: Mapping[str, Model] | None = None,
        event_stream_handler: EventStreamHandler[AgentDepsT] | None = None,
        name: str | None = None,
        model: StepOptions | None = None,
        tool: StepOptions | None = None,
    ) -> None:
        """`models`, `event_stream_handler`: see BaseDurabilityCapability. `name`: default that of the agent.

        `model`, `tool`: options for the steps of model requests, and of tool calls. Default: those of `Step`.
        """
        super().__init__(models=models, event_stream_handler=event_stream_handler, name=name)
        self._model = model or StepOptions()
        self._tool = tool or StepOptions()

    @property
    def in_durable_context(self) -> bool:
        """Whether `durable(job)` is around, and no step."""
        return _current.get() is not None

    def get_default_run_id(self) -> str | None:
        """Return an id that all attempts at the job give this run."""
        job = _current.get()
        return None if job is None else job.step_key(*_numbered(job, f"{self.name}__run").at)

    def get_default_conversation_id(self, run_id: str) -> str | None:
        """Return an id that all attempts at the job give this conversation."""
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    async def get_run_start_time(self, run_id: str) -> datetime | None:  # noqa: ARG002 - runs begin in order
        """Return when the first attempt began this run, from which its `timeout=` counts."""
        job = _current.get()
        return None if job is None else await job.step(_numbered(job, f"{self.name}__run_start_time"), _now)

    def get_durable_operation_backend(self) -> _Backend:
        """Return what records an operation as a step."""
        config = RoleBasedOperationConfig(
            model=self._model,
            event=StepOptions(),
            capability=StepOptions(),
            tool=self._tool,
            resolve_tool=self._options_of,
        )
        return _Backend(agent_name=self.name, config=config)

    def _options_of(self, _: DurableOperationId, tool: object | None, name: str) -> StepOptions | Literal[False]:
        metadata = tool.tool_def.metadata if isinstance(tool, ToolsetTool) else None
        options = (metadata or {}).get(_METADATA, self._tool)
        if options is False:
            return False
        if not isinstance(options, StepOptions):
            raise UserError(
                f"tool {name!r}: metadata {_METADATA!r}: expected StepOptions or False, got {options!r:.60}"
            )
        return options


async def _now() -> datetime:
    return datetime.now(UTC)
