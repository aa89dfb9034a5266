"""A runner: recurring work under a name. Its function takes a `Tick`, and is the only code that does the work."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from holdfast.errors import HoldfastError
from holdfast.kind import check_option
from holdfast.schedule import check_schedule
from holdfast.signal import AbortSignal

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.new_job import NewJob
    from holdfast.schedule import Schedule
    from holdfast.settings import Settings

Counts: TypeAlias = Mapping[str, int]
"""What a tick did, by name: `{"deleted": 12}`. A tick that did nothing returns zeros, or nothing."""

BUILT_IN = ("outbox", "relay", "schedules", "reaper", "maintenance")
NAME_LIMIT = 200
# A tick is told that its time is spent a little before it is, so that it can end by itself.
USABLE = 0.9


class Budget:
    """What a tick may still use up. In background mode there is no limit of items.

    >>> budget = Budget(items=10)
    >>> budget.spend(8)
    >>> budget.most(100), budget.spent
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
        """None: as many as there are."""
        self.ended = False
        """Whoever works under it shall stop."""

    @property
    def seconds_left(self) -> float | None:
        """None: as long as it takes."""
        return None if self._until is None else max(0.0, self._until - self._clock())

    @property
    def over(self) -> bool:
        """Time is used up: what has been taken is left, too."""
        return self.ended or self.seconds_left == 0

    @property
    def spent(self) -> bool:
        """Time or items are used up: return, the rest is for the next tick."""
        return self.over or (self.items_left is not None and self.items_left <= 0)

    def spend(self, items: int = 1) -> None:
        if self.items_left is not None:
            self.items_left -= items

    def end(self) -> None:
        """Let nothing more be begun."""
        self.ended = True

    def most(self, items: int) -> int:
        """Return this many, or what is left if that is less: the size of a batch."""
        return items if self.items_left is None else max(0, min(items, self.items_left))

    def shares(self, among: int) -> list[Budget]:
        """Divide what is left among so many that work side by side; nobody goes without.

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


class Tick:
    """One pass of a runner: what its function receives."""

    __slots__ = ("attempt", "budget", "name", "next_look", "run_id", "settings", "signal", "slot", "state")

    def __init__(  # noqa: PLR0913 - one keyword per thing a runner may ask
        self,
        *,
        name: str,
        state: Any = None,
        budget: Budget | None = None,
        signal: AbortSignal | None = None,
        settings: Settings | None = None,
        run_id: int = 0,
        slot: datetime | None = None,
        attempt: int = 1,
    ) -> None:
        self.name = name
        self.state = state
        """What the application's lifespan yielded; shared by all handlers and runners."""
        self.budget = budget or Budget()
        self.signal = signal or AbortSignal()
        """Fires when this tick should stop, with the reason."""
        self.settings = settings
        self.run_id = run_id
        """The id of the row in `run`, if there will be one."""
        self.slot = slot
        """For which time of the schedule this is; None without a schedule."""
        self.attempt = attempt
        """2 or more when this slot was started before, by a worker that died."""
        self.next_look: float | None = None

    def __repr__(self) -> str:
        return f"<Tick {self.run_id} {self.name}>"

    def look_again(self, after: timedelta) -> None:
        """Ask for the next tick no later than this, if this one did nothing. For background mode."""
        self.next_look = max(0.0, after.total_seconds())


TickFunction: TypeAlias = Callable[[Tick], Awaitable[Counts | None] | Counts | None]


class Runner:
    """A function that is called with a `Tick`, and when."""

    def __init__(
        self,
        name: str,
        function: TickFunction,
        *,
        every: Schedule | None = None,
        singleton: bool = False,
        max_runtime: timedelta | None = None,
    ) -> None:
        check_name(name)
        if every is not None:
            check_schedule(every)
        check_option("max_runtime", max_runtime, timedelta, "timedelta(minutes=10)")
        if max_runtime is not None and max_runtime.total_seconds() <= 0:
            raise ValueError("max_runtime must be longer than nothing")
        self.name = name
        self.function = function
        self.every = every
        self.singleton = singleton
        self.max_runtime = max_runtime
        """In background mode. Default: the time of a whole one-shot tick."""
        self.is_async = inspect.iscoroutinefunction(function)
        self.running = False
        """Never twice at a time in one process."""
        self.grace = 0.0
        """How many seconds it may take to end when told to stop, if longer than usual."""
        self.runs_on = False
        """Its share of a one-shot tick limits what it starts; what runs may go on until the end of the whole tick."""

    def __repr__(self) -> str:
        return f"<Runner {self.name}>"

    async def call(self, tick: Tick) -> Counts:
        """Run the function, a plain one in a thread of its own; what it counted, checked."""
        answer = self.function(tick) if self.is_async else in_thread(lambda: self.function(tick), name=self.name)
        return checked(await cast("Awaitable[Counts | None]", answer))


@dataclass(frozen=True, slots=True)
class PeriodicJob:
    """A job that is enqueued in every slot of a schedule."""

    name: str
    job: NewJob[Any]
    _: KW_ONLY
    every: Schedule

    def __post_init__(self) -> None:
        check_name(self.name)
        check_schedule(self.every)
        unique = self.job.envelope.unique
        if unique is not None and unique.on_conflict == "raise":
            raise ValueError(f"{self.name}: a periodic job that raises on a conflict would stop its schedule")


def check_name(name: str) -> None:
    if not name.isprintable() or not 1 <= len(name.encode()) <= NAME_LIMIT or "," in name:
        raise ValueError(f"a name is 1 to {NAME_LIMIT} bytes of text without commas or control characters")


def checked(counts: object) -> Counts:
    if counts is None:
        return {}
    if not isinstance(counts, Mapping) or not all(isinstance(n, str) and type(c) is int for n, c in counts.items()):
        raise HoldfastError("a runner returns counts by name, like {'deleted': 12}")
    return dict(counts)


def selected(wanted: tuple[str, ...] | None, registered: Mapping[str, Runner]) -> list[str]:
    """Return the names of the runners in order: as wanted, else `outbox`, the application's, the rest of ours."""
    first, *others = BUILT_IN
    if wanted is None:
        return [first, *registered, *others]
    unknown = [name for name in wanted if name not in registered and name not in BUILT_IN]
    if unknown:
        known = ", ".join([*BUILT_IN, *registered])
        raise HoldfastError(f"WORKER_TICK_RUNNERS: no runner is named {', '.join(unknown)}; there are {known}")
    return list(wanted)


# What does not happen where no worker runs a built-in runner.
_WITHOUT = {
    "outbox": "no jobs run",
    "relay": "no subscription is read: no event is delivered",
    "schedules": "no periodic job is enqueued",
    "reaper": "expired leases of kinds that no live worker serves stay as they are",
    "maintenance": "partitions are neither made ahead nor dropped, and statistics are not folded",
}


def left_out(wanted: tuple[str, ...] | None, registered: Mapping[str, Runner]) -> list[str]:
    """Say which runners WORKER_TICK_RUNNERS leaves out, and what follows where no other worker runs them."""
    chosen = selected(wanted, registered)
    off = {name: why for name, why in _WITHOUT.items() if name not in chosen}
    off |= {name: "it does not run" for name in registered if name not in chosen}
    return [f"{name} is off (WORKER_TICK_RUNNERS): unless another worker runs it, {why}" for name, why in off.items()]


async def in_thread(function: Callable[[], Any], *, name: str) -> Any:
    """Run a plain function in a thread that does not keep the process alive. Cancelling leaves the thread behind."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if ended.cancelled():
            return
        if error is None:
            ended.set_result(result)
        else:
            ended.set_exception(error)

    def run() -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = function()
        except BaseException as exc:  # noqa: BLE001 - whatever it raises belongs to who waits for it
            # A future refuses StopIteration, and the loop would end on SystemExit.
            error = exc if isinstance(exc, Exception) and not isinstance(exc, StopIteration) else _Raised(exc)
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name=f"holdfast-runner-{name}", daemon=True).start()
    return await ended


class _Raised(HoldfastError):  # noqa: N818 - a name says what happened
    """A runner raised what ends programs."""

    def __init__(self, exc: BaseException) -> None:
        super().__init__(f"{type(exc).__name__}: {exc}")
        self.code = type(exc).__name__
