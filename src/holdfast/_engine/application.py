"""An application as the engine sees it: one value with everything it registers, its databases and its settings."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from holdfast._engine.runner import selected
from holdfast._model.codec import JsonCodec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from holdfast._engine.report.hook import Hook
    from holdfast._engine.report.transition import Listener, Transitions
    from holdfast._engine.runner import Budget, PeriodicJob, Runner
    from holdfast._engine.session import Session
    from holdfast._engine.wake.carriers import Carrier
    from holdfast._model.databases import Databases
    from holdfast._model.job import Job
    from holdfast._model.kind import Kind
    from holdfast._model.limit import Limit
    from holdfast._model.settings import Settings

    Middleware: TypeAlias = Callable[[Job[Any], str, Callable[[], Awaitable[object]]], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """The registrations, databases and settings of an application. Holdfast makes one for each worker and each tick."""

    databases: Databases
    """The databases to serve. The application's own runners and schedules run against the first."""
    settings: Settings
    databases_file: str | None = None
    """The file that names them; workers follow its changes. None: they do not change by themselves."""
    kinds: Mapping[str, Kind[..., Any]] = field(default_factory=dict)
    """The kinds that have a handler here."""
    codec: JsonCodec = field(default_factory=JsonCodec)
    middlewares: Sequence[Middleware] = ()
    listeners: Sequence[Listener] = ()
    failure_hooks: Sequence[Hook] = ()
    dead_letter_hooks: Sequence[Hook] = ()
    runners: Mapping[str, Runner] = field(default_factory=dict)
    schedules: Mapping[str, PeriodicJob] = field(default_factory=dict)
    limits: Mapping[str, Limit] = field(default_factory=dict)
    """The limits by name, which each worker stores in each database when it registers."""
    lifespan: Callable[[], AbstractAsyncContextManager[Any]] = nullcontext
    """Yields the state that all handlers and runners share."""
    wake: Carrier | None = None
    """The broker that carries wake-ups; None: LISTEN."""
    relays: MakeRelaying | None = None
    """Makes the relays of the subscriptions; None: there are no subscriptions."""
    archive: Callable[[str], Sequence[Runner]] | None = None
    """Makes the runners of the archive for the database of this URL; None: nothing is archived."""
    archive_names: Sequence[str] = ()
    """The names of these runners."""

    @property
    def runner_names(self) -> list[str]:
        """The names of the runners that are not built in."""
        return [*self.runners, *self.archive_names]

    @property
    def selected(self) -> list[str]:
        """The names of the runners to run, in order."""
        return selected(self.settings.tick_runners, self.runner_names, label=self.settings.label("tick_runners"))


class Relaying(AbstractAsyncContextManager["Relaying"], Protocol):
    """Reads the event log of one database while its `async with` block runs.

    A protocol, as `MakeRelaying` is, since `_relay`, which implements them, uses the engine.
    """

    @property
    def counts(self) -> Mapping[str, int]:
        """Events delivered so far, by subscription. It is one object, which changes."""
        ...

    async def drain(self, budget: Budget) -> Mapping[str, int]:
        """Deliver the available events once, without the block."""
        ...


class MakeRelaying(Protocol):
    def __call__(self, session: Session, transitions: Transitions) -> Relaying:
        """Make the relays of one database."""
        ...
