"""The registry of an application: kinds, subscriptions, runners, schedules and hooks."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

from holdfast._app.arguments import check_model, check_registered_name, topic_names
from holdfast._app.declarations import Declarations
from holdfast._engine.runner import BUILT_IN, PeriodicJob, Runner
from holdfast._engine.runners.http import TIMEOUT as HTTP_TIMEOUT
from holdfast._engine.runners.http import HttpCall
from holdfast._model.batch_kind import BatchKind, Item
from holdfast._model.call import explained
from holdfast._model.declared_kind import DeclaredKind
from holdfast._model.duration import DAY, MORE_THAN_ZERO, as_timedelta
from holdfast._model.errors import HoldfastError, InvalidJob, KindTaken, SubscriptionTaken
from holdfast._model.event import Subscriber
from holdfast._model.kind import Kind
from holdfast._model.new_job import OMITTED, Envelope, NewJob, Omitted, check_new_job
from holdfast._model.option import checked_tags
from holdfast._model.retry import Retry
from holdfast._model.work import SHORTEST_LEASE, Executor, longest_run, work_of
from holdfast._relay.subscription import Feed, Relay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from holdfast._engine.application import Middleware
    from holdfast._engine.report.hook import Hook
    from holdfast._engine.report.transition import Listener
    from holdfast._engine.runner import TickFunction
    from holdfast._model.codec import JsonCodec
    from holdfast._model.duration import Duration
    from holdfast._model.event import Subscribe, Topic
    from holdfast._model.limit import Limit
    from holdfast._model.schedule import Missed, Schedule
    from holdfast._model.unique import Unique
    from holdfast._model.work import Lease, LogLevel
    from holdfast._relay.message import Message as OutgoingMessage
    from holdfast._relay.message import Sink
    from holdfast._relay.subscription import Poison, Start

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound="TickFunction")
H = TypeVar("H", bound="Hook")

AnyKind: TypeAlias = Kind[..., Any] | DeclaredKind[Any]
K = TypeVar("K", bound=AnyKind)


class Registry(Declarations):
    """Holds everything that is registered when the application's modules are imported."""

    def __init__(self, codec: JsonCodec) -> None:
        super().__init__(codec)
        self.middlewares: list[Middleware] = []
        self.listeners: list[Listener] = []
        self.failure_hooks: list[Hook] = []
        self.dead_letter_hooks: list[Hook] = []
        self._kinds: dict[str, AnyKind] = {}
        self._runners: dict[str, Runner] = {}
        self._schedules: dict[str, PeriodicJob] = {}
        self._subscriptions: dict[str, Feed | Relay] = {}

    @property
    def kinds(self) -> Mapping[str, AnyKind]:
        """All kinds of this application by name."""
        return MappingProxyType(self._kinds)

    @explained("app.job")
    def job(  # noqa: PLR0913 - one keyword per setting
        self,
        name: str,
        *,
        queue: str = "default",
        priority: int = 5,
        retry: Retry | None = None,
        lease: Lease | Duration | None = None,
        max_runtime: Duration | None = None,
        version: int = 1,
        executor: Executor = "thread",
        unique: str | Unique | None = None,
        limits: Sequence[Limit | str] = (),
        tenant: str | None = None,
        tags: Iterable[str] = (),
        keep_logs: LogLevel | None = None,
    ) -> Callable[[Callable[P, T]], Kind[P, T]]:
        """Register a handler, `async def` or plain. It receives the job if its first parameter is annotated `Job`.

        `priority`: 0 to 9, lower runs first. Default: 5. `retry` and `lease`: default to the worker's. `max_runtime`: a
        longer attempt is aborted with `timeout` and fails. Default: three times the lease. Both are in seconds or a
        timedelta. `version`: of the payload. `executor`: where a plain function runs. Default: in a thread. `unique`: a
        key for all its jobs, or `Unique.by("customer_id")`; `.options(unique=…)` replaces it. Default: none. `limits`:
        up to three, each a `Limit(concurrency=3)` or the name of an `app.limit`. Default: none. `tenant`: the argument
        by whose values the jobs take turns. Default: none, the oldest is first. `tags`: at most 8 words to find its
        jobs by. Default: none. `keep_logs`: keep the last 200 log records, at most 16 KiB, from this level up with each
        attempt that does not complete. Default: none is kept.
        """
        check_registered_name("app.job", name)
        work = work_of(retry=retry, lease=lease, max_runtime=max_runtime, executor=executor, keep_logs=keep_logs)
        envelope = Envelope(
            name,
            version,
            queue=queue,
            priority=priority,
            max_attempts=(retry or Retry()).max_attempts,
            tags=checked_tags(tags),
        )

        def register(handler: Callable[P, T]) -> Kind[P, T]:
            kept = self._keep_limits(name, limits)
            return self._register(
                Kind(handler, envelope, work=work, codec=self.codec, unique=unique, limits=kept, tenant=tenant)
            )

        return register

    @explained("app.batch")
    def batch(  # noqa: PLR0913 - one keyword per setting
        self,
        name: str,
        *,
        size: int = 100,
        queue: str = "default",
        priority: int = 5,
        retry: Retry | None = None,
        lease: Lease | Duration | None = None,
        max_runtime: Duration | None = None,
        version: int = 1,
        unique: str | Unique | None = None,
        limits: Sequence[Limit | str] = (),
        tenant: str | None = None,
        tags: Iterable[str] = (),
        keep_logs: LogLevel | None = None,
    ) -> Callable[[Callable[[list[Item[A]]], T]], BatchKind[A, T]]:
        """Register a handler that takes several jobs in one call and one slot, as `list[Item[A]]`.

        A is the type of the arguments. The handler returns a list with the end of each job, in order: a result,
        Continue, Fail, Reschedule, Retry.again or Busy. If it returns None, all complete; if it raises, the exception
        ends all of them. Use a separate queue, so that batches fill up. `size`: the most jobs per call. Default: 100.
        See `job` for the other arguments.
        """
        check_registered_name("app.batch", name)
        work = work_of(retry=retry, lease=lease, max_runtime=max_runtime, batch=size, keep_logs=keep_logs)
        envelope = Envelope(
            name,
            version,
            queue=queue,
            priority=priority,
            max_attempts=(retry or Retry()).max_attempts,
            tags=checked_tags(tags),
        )

        def register(handler: Callable[[list[Item[A]]], T]) -> BatchKind[A, T]:
            kept = self._keep_limits(name, limits)
            return self._register(
                BatchKind(handler, envelope, work=work, codec=self.codec, unique=unique, limits=kept, tenant=tenant)
            )

        return register

    @explained("app.declare")
    def declare(  # noqa: PLR0913 - one keyword per setting
        self,
        name: str,
        model: type[A],
        *,
        queue: str = "default",
        priority: int = 5,
        max_attempts: int | Omitted | None = OMITTED,
        version: int = 1,
        unique: str | Unique | None = None,
        limits: Sequence[Limit | str] = (),
        tenant: str | None = None,
        tags: Iterable[str] = (),
    ) -> DeclaredKind[A]:
        """Declare a kind whose handler runs in another service.

        `model`: the type of its arguments: pydantic, dataclass or TypedDict. `priority`: 0 to 9, lower runs first.
        Default: 5. `max_attempts`: attempts in all; None is no limit. Default: HOLDFAST_RETRY_MAX_ATTEMPTS of the
        process that makes the job. `unique`, `limits`, `tenant` and `tags`: see `job`.
        """
        check_registered_name("app.declare", name)
        check_model("app.declare", name, model)
        attempts = Retry().max_attempts if isinstance(max_attempts, Omitted) else max_attempts
        envelope = Envelope(
            name, version, queue=queue, priority=priority, max_attempts=attempts, tags=checked_tags(tags)
        )
        own_limit = max_attempts is not OMITTED
        kept = self._keep_limits(name, limits)
        return self._register(
            DeclaredKind(
                model, envelope, codec=self.codec, own_limit=own_limit, unique=unique, limits=kept, tenant=tenant
            )
        )

    @property
    def subscriptions(self) -> Mapping[str, Feed | Relay]:
        """All subscriptions of this application by name."""
        return MappingProxyType(self._subscriptions)

    @explained("app.on")
    def on(  # noqa: PLR0913 - one keyword per setting
        self,
        *topics: Topic[A],
        name: str,
        start: Start = "now",
        ordered: bool = False,
        queue: str = "default",
        priority: int = 5,
        retry: Retry | None = None,
        lease: Lease | Duration | None = None,
        max_runtime: Duration | None = None,
        limits: Sequence[Limit | str] = (),
        keep_logs: LogLevel | None = None,
    ) -> Subscribe[A]:
        """Register a handler that gets one job per event of these topics.

        `name`: of the subscription, and the kind of its jobs. `start`: `now` or `beginning`. Default: `now`. `ordered`:
        run the jobs of one key one at a time, in order. Default: False. `limits`: without `by`, since the jobs have no
        arguments but the event. See `job` for the other arguments.
        """
        names = topic_names("app.on", topics)
        work = work_of(retry=retry, lease=lease, max_runtime=max_runtime, keep_logs=keep_logs)
        envelope = Envelope(name, queue=queue, priority=priority, max_attempts=(retry or Retry()).max_attempts)

        def register(handler: Callable[..., T]) -> Kind[..., T]:
            kept = self._keep_limits(name, limits)
            keyed = replace(envelope, limits=tuple([limit.name for limit in kept]))
            kind: Kind[..., T] = Subscriber(handler, keyed, work=work, codec=self.codec)
            if list(kind.parameters) != ["event"]:
                raise TypeError(f"{name}: a subscriber takes the event: write (event) or (job, event)")
            for limit in kept:
                if limit.names:
                    raise InvalidJob(
                        f"{name}: Limit(by={limit.names[0]!r}): a subscriber's jobs have the event alone: leave out by"
                    )
            self._subscribe(Feed(name, names, kind, start=start, ordered=ordered))
            return self._register(kind)

        return register

    @explained("app.relay")
    def relay(  # noqa: PLR0913 - one keyword per setting
        self,
        name: str,
        *topics: Topic[Any],
        to: Sink,
        start: Start = "now",
        partitions: int = 1,
        poison: Poison = "block",
        window: int = 256,
        envelope: Callable[[OutgoingMessage], OutgoingMessage] | None = None,
        lease: Duration | None = None,
    ) -> None:
        """Publish every event of these topics to a sink, in order per key; without topics, every event.

        `start`: `now` or `beginning`. `partitions`: the most processes that can share the work. Default: 1. `poison`:
        an event that the sink rejects can `block` its partition until an operator acts (default), be set aside with all
        later events of its key (`park_key`), or alone (`skip`). `window`: events in flight. Default: 256. `lease`: if a
        process dies, its partitions are reassigned after this time, in seconds or a timedelta. Default: the worker's
        lease.
        """
        check_registered_name("app.relay", name)
        relay = Relay(
            name,
            topic_names("app.relay", topics),
            to,
            start=start,
            partitions=partitions,
            poison=poison,
            window=window,
            envelope=envelope,
            lease=None if lease is None else as_timedelta("lease", lease, least=SHORTEST_LEASE, limit=DAY),
        )
        self._subscribe(relay)

    @property
    def runners(self) -> Mapping[str, Runner]:
        """The application's runners by name, in the order of registration."""
        return MappingProxyType(self._runners)

    @property
    def schedules(self) -> Mapping[str, PeriodicJob]:
        """The periodic jobs by the name of their schedule."""
        return MappingProxyType(self._schedules)

    @explained("app.runner")
    def runner(  # noqa: PLR0913 - one keyword per option
        self,
        name: str,
        *,
        every: Schedule | None = None,
        singleton: bool = False,
        max_runtime: Duration | None = None,
        at_start: bool | None = None,
        missed: Missed = "run",
    ) -> Callable[[F], F]:
        """Register a function, `async def` or plain, that is called periodically with a `Tick` and returns counts.

        With `every`, one worker of the fleet runs it per slot. Without it, every worker runs it repeatedly, with a
        shorter pause after work than when idle. `singleton`: run at most one at a time in the fleet. Default: False.
        `max_runtime`: of one tick in background mode, in seconds or a timedelta. Default: the time of a whole one-shot
        tick, 480 seconds.
        `at_start`: run once when the schedule is first stored, before its first slot. Default: True for `Every`, False
        for `Cron`. `missed`: whether a slot that could not start within a minute, because no worker ran or the last run
        took longer, is run once, late, or skipped. Default: `run`.
        """
        check_registered_name("app.runner", name)

        def register(function: F) -> F:
            runner = Runner(
                name,
                function,
                every=every,
                singleton=singleton,
                max_runtime=longest_run(max_runtime),
                at_start=at_start,
                missed=missed,
            )
            self._add_runner(runner)
            return function

        return register

    @explained("app.http_runner")
    def http_runner(  # noqa: PLR0913 - one keyword per option
        self,
        name: str,
        path: str,
        *,
        every: Schedule | None = None,
        singleton: bool = True,
        timeout: Duration | None = None,
        at_start: bool | None = None,
        missed: Missed = "run",
    ) -> None:
        """Register a runner that calls a service: POST {HOLDFAST_API_BASE_URL}{path}, which responds with JSON counts.

        `timeout`: for the response, in seconds or a timedelta. Default: 30 seconds. See `runner` for the other
        arguments.
        """
        check_registered_name("app.http_runner", name)
        limit = HTTP_TIMEOUT if timeout is None else as_timedelta("timeout", timeout, least=MORE_THAN_ZERO)
        call = HttpCall(path, timeout=limit)
        self._add_runner(Runner(name, call.tick, every=every, singleton=singleton, at_start=at_start, missed=missed))

    @explained("app.schedule")
    def schedule(self, name: str, job: NewJob[Any], *, every: Schedule, missed: Missed = "run") -> None:
        """Enqueue this job once per slot of a schedule, however many workers run.

        `missed`: whether the job of a slot that passed more than a minute ago, because no worker ran, is enqueued once,
        late, or not at all (`skip`). Default: `run`.
        """
        check_registered_name("app.schedule", name)
        check_new_job(job, "app.schedule")
        self._check_name_free(name)
        self._schedules[name] = PeriodicJob(name, job, every=every, missed=missed)

    @explained("app.on_failure")
    def on_failure(self, hook: H) -> H:
        """Register a hook, `async def` or plain, that is called once with every `FailedAttempt` of this process.

        It runs after the failure is stored, concurrently with other work. Exceptions of a hook are logged.
        """
        self.failure_hooks.append(hook)
        return hook

    @explained("app.on_dead_letter")
    def on_dead_letter(self, hook: H) -> H:
        """Register a hook that is called when a worker of this process makes a dead letter. See `on_failure`."""
        self.dead_letter_hooks.append(hook)
        return hook

    def _add_runner(self, runner: Runner) -> None:
        self._check_name_free(runner.name)
        self._runners[runner.name] = runner

    def _check_name_free(self, name: str) -> None:
        if name in BUILT_IN:
            raise HoldfastError(f"{name}: a built-in runner has this name: choose another one")
        self._places.take(
            "runner or schedule", name, HoldfastError, taken=name in self._runners or name in self._schedules
        )

    def _subscribe(self, subscription: Feed | Relay) -> None:
        taken = subscription.name in self._subscriptions
        self._places.take("subscription", subscription.name, SubscriptionTaken, taken=taken)
        self._subscriptions[subscription.name] = subscription

    def _register(self, kind: K) -> K:
        self._places.take("kind", kind.name, KindTaken, taken=kind.name in self._kinds)
        if isinstance(kind, Kind):
            kind.returns.check()
        self._kinds[kind.name] = kind
        return kind
