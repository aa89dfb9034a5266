"""A runner: recurring work under a name. Its function takes a `Tick` and does all of the work."""

from __future__ import annotations

import inspect
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from holdfast._engine.keeper import in_thread
from holdfast._model.duration import as_timedelta
from holdfast._model.errors import AbortSignal, HoldfastError
from holdfast._model.schedule import Every, check_missed, check_schedule
from holdfast._model.work import check_option

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast._model.duration import Duration
    from holdfast._model.new_job import NewJob
    from holdfast._model.schedule import Missed, Schedule
    from holdfast._model.settings import Settings

Counts: TypeAlias = Mapping[str, int]
"""The result of a tick by name: `{"deleted": 12}`. A tick without work returns zeros or nothing."""

BUILT_IN = ("outbox", "relay", "schedules", "reaper", "bulk_actions", "maintenance")
# A crontab line may wait years for its next slot.
_FURTHEST = timedelta(days=36_600)
NAME_LIMIT = 200
# A tick's time budget ends a little early, so that its function can return by itself.
USABLE = 0.9


class Budget:
    """The time and items that a tick may still use. In background mode items are not limited.

    `items`: the number of items to process. Default: no limit. `seconds`: time in seconds. Default: no limit.

    >>> budget = Budget(items=10)
    >>> budget.spend(8)
    >>> budget.limit(100), budget.spent
    (2, False)
    """

    __slots__ = ("_clock", "_until", "ended", "items_left")

    def __init__(
        self,
        *,
        items: int | None = None,
        seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._until = None if seconds is None else clock() + seconds
        self.items_left = items
        """None: no limit."""
        self.ended: bool = False
        """Whether work under this budget should stop."""

    @property
    def seconds_left(self) -> float | None:
        """None: no limit."""
        return None if self._until is None else max(0.0, self._until - self._clock())

    @property
    def over(self) -> bool:
        """Whether the time is used up: stop, even with items already taken."""
        return self.ended or self.seconds_left == 0

    @property
    def spent(self) -> bool:
        """Whether the time or the items are used up: return, and leave the rest to the next tick."""
        return self.over or (self.items_left is not None and self.items_left <= 0)

    def spend(self, items: int = 1) -> None:
        """Subtract work that was done. `items`: the number of items. Default: 1."""
        if self.items_left is not None:
            self.items_left -= items

    def end(self) -> None:
        """Allow no more work."""
        self.ended = True

    def limit(self, items: int) -> int:
        """Return `items`, or the number left if that is less: the size of a batch."""
        return items if self.items_left is None else max(0, min(items, self.items_left))

    def shares(self, among: int) -> list[Budget]:
        """Divide the rest into budgets for concurrent work. Each gets at least one item if any are left.

        `among`: the number of budgets.

        >>> [share.items_left for share in Budget(items=7).shares(3)]
        [3, 2, 2]
        >>> [share.items_left for share in Budget(items=1).shares(3)]
        [1, 1, 1]
        """
        seconds = self.seconds_left
        if self.items_left is None:
            return [Budget(seconds=seconds, clock=self._clock) for _ in range(among)]
        each, over = divmod(max(among, self.items_left) if self.items_left > 0 else 0, max(1, among))
        return [Budget(items=each + (n < over), seconds=seconds, clock=self._clock) for n in range(among)]


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class Tick:
    """One pass of a runner: the argument of its function."""

    name: str
    state: Any = None
    """The value that the application's lifespan yielded; shared by all handlers and runners."""
    budget: Budget = field(default_factory=Budget)
    signal: AbortSignal = field(default_factory=AbortSignal)
    """Fires when this tick should stop, with the reason."""
    settings: Settings | None = None
    run_id: int = 0
    """The id of the row in `run`, if one is written."""
    slot: datetime | None = None
    """The scheduled time of this tick; None without a schedule."""
    attempt: int = 1
    """2 or more if a worker that died had started this slot before."""
    counts: Counter[str] = field(default_factory=Counter, init=False)
    """The counts so far."""
    next_look: float | None = field(default=None, init=False)

    def __repr__(self) -> str:
        return f"<Tick {self.run_id} {self.name}>"

    def count(self, name: str, more: int = 1) -> None:
        """Count work as it is done. The counts are recorded even if the tick fails or is stopped later.

        `more`: the number of items to add to the count of this name. Default: 1.

        >>> tick = Tick(name="carts")
        >>> tick.count("deleted", 12)
        >>> tick.count("deleted")
        >>> dict(tick.counts)
        {'deleted': 13}
        """
        self.counts.update(checked({name: more}))

    def look_again(self, after: Duration) -> None:
        """Request the next tick after at most this time if this one did nothing. For background mode.

        `after`: seconds or a timedelta.
        """
        self.next_look = as_timedelta("after", after, limit=_FURTHEST).total_seconds()


TickFunction: TypeAlias = Callable[[Tick], Awaitable[Counts | None] | Counts | None]


@dataclass(eq=False, repr=False)
class Runner:
    """A function that is called with a `Tick`, and its schedule."""

    name: str
    function: TickFunction
    _: KW_ONLY
    every: Schedule | None = None
    singleton: bool = False
    max_runtime: timedelta | None = None
    """In background mode. Defaults to the time of a whole one-shot tick."""
    at_start: bool | None = None
    """Run it when its schedule is first stored, before its first slot. Defaults to True for an interval."""
    missed: Missed = "run"
    """Whether a slot that could not start within a minute runs late or is skipped."""
    grace: float = 0.0
    """Seconds that it may take to end when stopped, if longer than usual."""
    runs_on: bool = False
    """Its share of a one-shot tick limits what it starts; running jobs may continue until the whole tick ends."""
    whole_tick: bool = False
    """In one-shot mode, it may take its `max_runtime` until the whole tick ends, and not just its share."""
    spread: float = 0.0
    """Up to this many seconds after its slot, at random, a worker looks at it: not all of a fleet at one moment. In
    between they look half as often."""
    quiet: bool = False
    """For built-in ones in background mode: a tick gets its id when there is something to record, and one whose
    database is away is tried again soon. Until it has an id, `tick.run_id` is 0."""
    is_async: bool = field(init=False)
    running: bool = field(default=False, init=False)
    """Whether it runs now: never twice at the same time in one process."""

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.every is not None:
            check_schedule(self.every)
        self._check_function()
        check_option("at_start", self.at_start, bool, "False")
        if self.at_start is None:
            self.at_start = isinstance(self.every, Every)
        elif self.every is None:
            raise ValueError("at_start: only a runner with a schedule has a first start, give every= too")
        check_missed(self.missed)
        if self.missed != "run" and self.every is None:
            raise ValueError("missed: only a runner with a schedule has slots, give every= too")
        self.is_async = inspect.iscoroutinefunction(self.function)

    def __repr__(self) -> str:
        return f"<Runner {self.name}>"

    def _check_function(self) -> None:
        if not callable(self.function):
            raise TypeError(f"{self.name}: a runner is a function of the tick, not a {type(self.function).__name__}")
        try:
            inspect.signature(self.function).bind(None)
        except TypeError:
            own = getattr(self.function, "__name__", "run")
            raise TypeError(f"{self.name}: a runner takes one argument, the tick: write def {own}(tick)") from None

    async def call(self, tick: Tick) -> Counts:
        """Call the function, a plain one in its own thread. Return `tick.counts` merged with its return value."""
        answer = self.function(tick) if self.is_async else in_thread(lambda: self.function(tick), name=self.name)
        returned = checked(await cast("Awaitable[Counts | None]", answer))
        return {**tick.counts, **returned}


@dataclass(frozen=True, slots=True)
class PeriodicJob:
    """A job that is enqueued in every slot of a schedule."""

    name: str
    job: NewJob[Any]
    _: KW_ONLY
    every: Schedule
    missed: Missed = "run"

    def __post_init__(self) -> None:
        check_name(self.name)
        check_schedule(self.every)
        check_missed(self.missed)
        unique = self.job.envelope.unique
        if unique is not None and unique.on_conflict == "raise":
            raise ValueError(f"{self.name}: a periodic job that raises on a conflict would stop its schedule")


def check_name(name: object) -> None:
    if (
        not isinstance(name, str)
        or not name.isprintable()
        or not 1 <= len(name.encode()) <= NAME_LIMIT
        or name.startswith("-")
        or "," in name
    ):
        rule = f"a name is text of 1 to {NAME_LIMIT} bytes without commas, control characters or a minus in front"
        raise ValueError(f"{name!r:.60}: {rule}")


def checked(counts: object) -> Counts:
    if counts is None:
        return {}
    if not isinstance(counts, Mapping) or not all(isinstance(n, str) and type(c) is int for n, c in counts.items()):
        raise HoldfastError("a runner counts by name and in whole numbers, like {'deleted': 12}")
    return dict(counts)


def selected(
    wanted: tuple[str, ...] | None, registered: Collection[str], *, label: str = "HOLDFAST_TICK_RUNNERS"
) -> list[str]:
    """Return the runner names in order: those `wanted`, else `outbox` and the application's; then the built-in ones.

    A wanted name with a minus is left out: a list from before Holdfast does not name the reaper, and must not end it.
    `registered`: the names of the runners that the application and its archive add. `label`: the name under which
    `wanted` was set, for the message that refuses it.
    """
    first, *others = BUILT_IN
    named = [name for name in wanted or () if not name.startswith("-")]
    off = [name[1:] for name in wanted or () if name.startswith("-")]
    if unknown := [name for name in (*named, *off) if name not in registered and name not in BUILT_IN]:
        known = ", ".join([*BUILT_IN, *registered])
        raise HoldfastError(f"{label}: no runner is named {', '.join(unknown)}; there are {known}")
    return [name for name in dict.fromkeys([*(named or [first, *registered]), *others]) if name not in off]


# The consequence where no worker runs a built-in runner.
_WITHOUT = {
    "outbox": "no jobs run",
    "relay": "no subscription is read: no event is delivered",
    "schedules": "no periodic job is enqueued",
    "reaper": "expired leases of kinds that no live worker serves stay as they are",
    "bulk_actions": "nothing that an operator does to all jobs of a filter is carried on",
    "maintenance": "partitions are neither made ahead nor dropped, and statistics are not folded",
}


def left_out(settings: Settings, registered: Collection[str]) -> list[str]:
    """Return a warning for each runner that HOLDFAST_TICK_RUNNERS leaves out, with the consequence. See `selected`."""
    label = settings.label("tick_runners")
    chosen = selected(settings.tick_runners, registered, label=label)
    off = {name: why for name, why in _WITHOUT.items() if name not in chosen}
    off |= {name: "it does not run" for name in registered if name not in chosen}
    return [f"{name} is off ({label}): unless another worker runs it, {why}" for name, why in off.items()]
