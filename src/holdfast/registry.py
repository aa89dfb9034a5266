"""What an application is made of: its kinds, topics, subscriptions, runners, schedules and hooks."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from holdfast.batch import BatchKind, Item
from holdfast.codec import JsonCodec
from holdfast.engine.http import HttpCall
from holdfast.engine.runner import BUILT_IN, PeriodicJob, Runner
from holdfast.errors import HoldfastError, KindTaken, SubscriptionTaken
from holdfast.event import Event, NewEvent, Subscriber, Topic
from holdfast.kind import DeclaredKind, Executor, Kind, Work
from holdfast.new_job import Envelope, NewJob, check_new_job
from holdfast.relay.subscription import Feed, Relay
from holdfast.retry import Retry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    from holdfast.engine.attempt import Middleware
    from holdfast.engine.hook import Hook
    from holdfast.engine.runner import TickFunction
    from holdfast.engine.transition import Listener
    from holdfast.job import Job
    from holdfast.lease import Lease
    from holdfast.relay.message import Message, Sink
    from holdfast.relay.subscription import Poison, Start
    from holdfast.schedule import Schedule

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound="TickFunction")
H = TypeVar("H", bound="Hook")

AnyKind: TypeAlias = Kind[..., Any] | DeclaredKind[Any]


class Registry:
    """What is registered once, when the application's modules are imported."""

    def __init__(self, *, codec: JsonCodec | None = None) -> None:
        self.codec = codec or JsonCodec()
        self.middlewares: list[Middleware] = []
        self.listeners: list[Listener] = []
        self.failure_hooks: list[Hook] = []
        self.dead_letter_hooks: list[Hook] = []
        self._kinds: dict[str, AnyKind] = {}
        self._runners: dict[str, Runner] = {}
        self._schedules: dict[str, PeriodicJob] = {}
        self._topics: dict[str, Topic[Any]] = {}
        self._subscriptions: dict[str, Feed | Relay] = {}

    @property
    def kinds(self) -> Mapping[str, AnyKind]:
        """Every kind of this application by its name."""
        return MappingProxyType(self._kinds)

    def job(  # noqa: PLR0913 - one keyword per setting
        self,
        name: str,
        *,
        queue: str = "default",
        priority: int = 5,
        retry: Retry | None = None,
        lease: Lease | None = None,
        max_runtime: timedelta | None = None,
        version: int = 1,
        executor: Executor = "thread",
    ) -> Callable[[Callable[Concatenate[Job[Any], P], T]], Kind[P, T]]:
        """Register a handler, `async def` or plain, whose first parameter is the job.

        `max_runtime`: an attempt that runs longer is aborted with `timeout` and fails. Default: three times the lease.
        """
        work = Work(retry=retry, lease=lease, max_runtime=max_runtime, executor=executor)
        envelope = Envelope(name, version, queue=queue, priority=priority, max_attempts=(retry or Retry()).max_attempts)

        def register(handler: Callable[Concatenate[Job[Any], P], T]) -> Kind[P, T]:
            kind: Kind[P, T] = Kind(handler, envelope, work=work, codec=self.codec)
            self._register(kind)
            return kind

        return register

    def batch(  # noqa: PLR0913 - one keyword per setting
        self,
        name: str,
        *,
        size: int = 100,
        queue: str = "default",
        priority: int = 5,
        retry: Retry | None = None,
        lease: Lease | None = None,
        max_runtime: timedelta | None = None,
        version: int = 1,
    ) -> Callable[[Callable[[list[Item[A]]], T]], BatchKind[A, T]]:
        """Register a handler that takes up to `size` jobs in one call, in one slot: `list[Item[A]]`, A its arguments.

        It returns a list of how each ended, in their order: a result, Continue, Fail, Reschedule or Busy; or None, and
        all are completed. What it raises ends all of them. Give it a queue of its own, so that batches fill up.
        """
        work = Work(retry=retry, lease=lease, max_runtime=max_runtime, batch=size)
        envelope = Envelope(name, version, queue=queue, priority=priority, max_attempts=(retry or Retry()).max_attempts)

        def register(handler: Callable[[list[Item[A]]], T]) -> BatchKind[A, T]:
            kind: BatchKind[A, T] = BatchKind(handler, envelope, work=work, codec=self.codec)
            self._register(kind)
            return kind

        return register

    def declare(  # noqa: PLR0913 - one keyword per setting
        self,
        name: str,
        model: type[A],
        *,
        queue: str = "default",
        priority: int = 5,
        max_attempts: int | None = None,
        version: int = 1,
    ) -> DeclaredKind[A]:
        """Name a kind whose handler lives elsewhere; `model` is its arguments: pydantic, dataclass or TypedDict.

        `max_attempts`: default: as many as the environment says, where the job is made.
        """
        attempts = Retry().max_attempts if max_attempts is None else max_attempts
        envelope = Envelope(name, version, queue=queue, priority=priority, max_attempts=attempts)
        kind = DeclaredKind(model, envelope, codec=self.codec, max_attempts=max_attempts)
        self._register(kind)
        return kind

    def event(self, name: str, model: type[A], *, version: int = 1) -> Topic[A]:
        """Declare a topic; `model` is what its events say: pydantic, dataclass or TypedDict."""
        if name in self._topics:
            raise HoldfastError(f"{name}: a topic of this name is declared already")
        self._topics[name] = Topic(name, model, version=version, codec=self.codec)
        return self._topics[name]

    @property
    def topics(self) -> Mapping[str, Topic[Any]]:
        """Every topic of this application by its name."""
        return MappingProxyType(self._topics)

    @property
    def subscriptions(self) -> Mapping[str, Feed | Relay]:
        """Every subscription of this application by its name."""
        return MappingProxyType(self._subscriptions)

    def on(  # noqa: PLR0913 - one keyword per setting
        self,
        *topics: Topic[A],
        name: str,
        start: Start = "now",
        ordered: bool = False,
        queue: str = "default",
        priority: int = 5,
        retry: Retry | None = None,
        lease: Lease | None = None,
        max_runtime: timedelta | None = None,
    ) -> Callable[[Callable[[Job[Any], Event[A]], T]], Kind[[Event[A]], T]]:
        """Register a handler that gets a job for every event of these topics, from now on or from the beginning.

        `name` is the subscription's, and the kind of its jobs. `ordered`: those of one key run one after another.
        """
        work = Work(retry=retry, lease=lease, max_runtime=max_runtime)
        envelope = Envelope(name, queue=queue, priority=priority, max_attempts=(retry or Retry()).max_attempts)

        def register(handler: Callable[[Job[Any], Event[A]], T]) -> Kind[[Event[A]], T]:
            kind: Kind[[Event[A]], T] = Subscriber(handler, envelope, work=work, codec=self.codec)
            if list(kind.parameters) != ["event"]:
                raise TypeError(f"{name}: the handler of a subscription takes the job and the event: (job, event)")
            self._subscribe(Feed(name, _names(topics), kind, start=start, ordered=ordered))
            self._register(kind)
            return kind

        return register

    def relay(  # noqa: PLR0913 - one keyword per setting
        self,
        name: str,
        *topics: Topic[Any],
        to: Sink,
        start: Start = "now",
        partitions: int = 1,
        poison: Poison = "block",
        window: int = 256,
        envelope: Callable[[Message], Message] | None = None,
        lease: timedelta | None = None,
    ) -> None:
        """Publish every event of these topics to a sink, in order per key; without topics, of all.

        `partitions`: how many processes can share it. `poison`: an event that the sink refuses will `block` its
        partition until somebody acts, or it is set aside, with all that follows for its key (`park_key`) or alone
        (`skip`). `window`: how many are under way at once. `lease`: a dead process's partitions move after it.
        """
        relay = Relay(
            name,
            _names(topics),
            to,
            start=start,
            partitions=partitions,
            poison=poison,
            window=window,
            envelope=envelope,
            lease=lease,
        )
        self._subscribe(relay)

    @property
    def runners(self) -> Mapping[str, Runner]:
        """The application's own runners by name, as registered."""
        return MappingProxyType(self._runners)

    @property
    def schedules(self) -> Mapping[str, PeriodicJob]:
        """The periodic jobs by the name of their schedule."""
        return MappingProxyType(self._schedules)

    def runner(
        self,
        name: str,
        *,
        every: Schedule | None = None,
        singleton: bool = False,
        max_runtime: timedelta | None = None,
    ) -> Callable[[F], F]:
        """Register a cycle: a function, `async def` or plain, that is called with a `Tick` and returns counts.

        With `every` a fleet runs it once per slot; without, each worker runs it again and again, sooner after work than
        when idle. `singleton`: no two at a time in the whole fleet.
        """

        def register(function: F) -> F:
            self._add_runner(Runner(name, function, every=every, singleton=singleton, max_runtime=max_runtime))
            return function

        return register

    def http_runner(
        self,
        name: str,
        path: str,
        *,
        every: Schedule | None = None,
        singleton: bool = True,
        timeout: timedelta | None = None,
    ) -> None:
        """Register a cycle that a service does: POST {WORKER_API_BASE_URL}{path}, answered with JSON counts.

        `timeout`: how long an answer may take. Default: 30 seconds.
        """
        call = HttpCall(path) if timeout is None else HttpCall(path, timeout=timeout)
        self._add_runner(Runner(name, call.tick, every=every, singleton=singleton))

    def schedule(self, name: str, job: NewJob[Any], *, every: Schedule) -> None:
        """Enqueue this job in every slot of a schedule, once however many workers there are."""
        check_jobs([job])
        self._check_name_free(name)
        self._schedules[name] = PeriodicJob(name, job, every=every)

    def on_failure(self, hook: H) -> H:
        """Register a hook, `async def` or plain, that is called with every `FailedAttempt` of this process, once.

        When its ending is written, beside everything else; what a hook raises is logged.
        """
        self.failure_hooks.append(hook)
        return hook

    def on_dead_letter(self, hook: H) -> H:
        """Register a hook that is called, as `on_failure` is, when a worker of this process made a dead letter."""
        self.dead_letter_hooks.append(hook)
        return hook

    def _add_runner(self, runner: Runner) -> None:
        self._check_name_free(runner.name)
        self._runners[runner.name] = runner

    def _check_name_free(self, name: str) -> None:
        if name in BUILT_IN or name in self._runners or name in self._schedules:
            raise HoldfastError(f"{name}: a runner or schedule of this name is there already")

    def _subscribe(self, subscription: Feed | Relay) -> None:
        if subscription.name in self._subscriptions:
            raise SubscriptionTaken(f"{subscription.name} is subscribed already")
        self._subscriptions[subscription.name] = subscription

    def _register(self, kind: AnyKind) -> None:
        if kind.name in self._kinds:
            raise KindTaken(f"{kind.name} is registered already")
        if isinstance(kind, Kind):
            kind.returns.check()
        self._kinds[kind.name] = kind


def _names(topics: Sequence[Topic[Any]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(topic.name for topic in topics))


def check_events(events: Sequence[NewEvent]) -> None:
    for event in events:
        if not isinstance(event, NewEvent):
            raise TypeError(f"{type(event).__name__} given where a NewEvent is needed: call its topic's .new(...)")


def check_jobs(jobs: Sequence[NewJob[Any]]) -> None:
    for job in jobs:
        check_new_job(job)
