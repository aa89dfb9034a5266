"""A screen with a table that is sorted and filtered by keys, for one database and for the list of several."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import psycopg
from textual.binding import Binding
from textual.screen import Screen
from textual.widgets import Input, Static

from holdfast._logs.failure import Failure
from holdfast._model.errors import HoldfastError
from holdfast._ops.caller import RequestRefused
from holdfast._ops.wording import counted
from holdfast._top.dialogs import GUIDE, Reader
from holdfast._top.headline import Trouble
from holdfast._top.sheet import TextPage, Words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from textual.binding import BindingType

    from holdfast._ops.responses.fleet import Overview
    from holdfast._ops.service import Service
    from holdfast._top.grid import Grid

_LONGEST_FILTER = 200
FAILURES = (RequestRefused, HoldfastError, psycopg.Error, OSError)
"""The errors of a read or an action."""
SILENT = RequestRefused(503, "silent", "the database does not answer")
# A read that takes longer loses its connection, and the next one opens another.
_LONGEST_READ = 15.0


class ShownDatabase(NamedTuple):
    service: Service
    """With one connection."""
    where: str
    """Its name and host, without the password."""
    name: str = ""
    """Its name in the list; empty for a single address without a name."""
    draining: bool = False

    @property
    def shown(self) -> str:
        return f"{self.name}: {self.where}" if self.name else self.where


@dataclass(slots=True)
class DatabaseReading:
    """The last answer of a database, and why there is no newer one."""

    database: ShownDatabase
    overview: Overview | None = None
    trouble: Trouble | None = None
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set to read at once."""


class TableScreen(Screen[None]):
    """Reads databases periodically; sorts and filters the visible table."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("s", "sort(1)", "Sort"),
        Binding("S", "sort(-1)", "Sort", show=False),
        Binding("o", "turn", "Turn", show=False),
        Binding("exclamation_mark", "problems", "Problems", key_display="!"),
        Binding("question_mark", "guide", "Help", key_display="?"),
        Binding("space", "refresh", "Refresh", show=False),
        Binding("escape", "escape", "Drop the filter", show=False),
    ]

    def __init__(self, readings: Sequence[DatabaseReading], interval: float) -> None:
        """`interval`: seconds between two reads of a database."""
        super().__init__()
        self.readings = readings
        self.interval = interval
        self.patience = 5.0
        """Seconds after which a read without an answer is reported."""
        self.may_read = asyncio.Event()
        self.looks = 0
        """Number of complete reads."""
        self.hint = ""
        """The key to the next screen, shown below the table."""
        self._note = Static(id="note", markup=False)
        self._filter = Input(placeholder="words, or column:word", id="filter", max_length=_LONGEST_FILTER, compact=True)

    @property
    @abstractmethod
    def grid(self) -> Grid:
        """The visible table."""

    @property
    @abstractmethod
    def problems(self) -> Iterable[str]:
        """All that is wrong, line by line."""

    @abstractmethod
    def draw(self) -> None:
        """Draw everything around the tables."""

    @abstractmethod
    async def read(self, reading: DatabaseReading) -> None:
        """Read what the screen shows of this database."""

    async def keep_reading(self, reading: DatabaseReading) -> None:
        """Read a database periodically while the screen is visible, one read at a time."""
        while True:
            await self.may_read.wait()
            reading.asked.clear()
            await self._read_patiently(reading)
            with suppress(TimeoutError):
                async with asyncio.timeout(self.interval):
                    await reading.asked.wait()

    async def _read_patiently(self, reading: DatabaseReading) -> None:
        """Read once, and report it if that takes too long."""
        clock = asyncio.get_running_loop().time
        began = clock()
        task = asyncio.create_task(self._read(reading))
        try:
            while not (await asyncio.wait({task}, timeout=self.patience))[0]:
                # A known reason says more than the silence of the next attempt.
                reading.trouble = reading.trouble or trouble_of(SILENT, None)
                if clock() - began >= _LONGEST_READ:
                    reading.database.service.sever()
                self.redraw()
        finally:
            task.cancel()
        await task

    async def _read(self, reading: DatabaseReading) -> None:
        try:
            await self.read(reading)
        except FAILURES as error:
            reading.trouble = trouble_of(error, reading.trouble)
        else:
            reading.trouble = None
            self.looks += 1
        self.redraw()

    def redraw(self) -> None:
        """Draw what was read."""
        self.draw()

    def action_refresh(self) -> None:
        """Read again at once."""
        for reading in self.readings:
            reading.asked.set()

    def on_screen_resume(self) -> None:
        self.may_read.set()
        self.action_refresh()

    def on_mount(self) -> None:
        self._filter.display = False
        self.grid.focus()
        self.draw()
        for reading in self.readings:
            self.run_worker(self.keep_reading(reading), group="read")

    def on_resize(self) -> None:
        self.draw()

    def draw_note(self) -> None:
        self._note.update(" " + " · ".join(filter(None, (*self._notes(), self.hint))))

    def _notes(self) -> tuple[str, ...]:
        grid = self.grid
        if unknown := grid.unknown(grid.words):
            titles = ", ".join([column.title for column in grid.table.columns])
            return (f"no column is named {unknown[0]}: there are {titles}",)
        if not grid.answered:
            return ("…",)
        if not grid.lines and not grid.words:
            return (grid.table.empty,)
        many = f"{len(grid.shown)} of " if grid.words else ""
        filtered = f"filter {grid.words}" if grid.words else ""
        return f"{many}{counted(len(grid.lines), grid.table.one)}", filtered, grid.note

    def action_sort(self, step: int) -> None:
        self.grid.sort_by((self.grid.sorted_by + step) % len(self.grid.table.columns))

    def action_turn(self) -> None:
        self.grid.sort_by(self.grid.sorted_by)

    def action_filter(self) -> None:
        self._filter.display = True
        self._filter.focus()

    def action_escape(self) -> None:
        """Drop the filter."""
        self._filter.value = ""
        self._filter.display = False
        self.grid.focus()
        self.ask(self.grid, Words())

    @property
    def is_filtering(self) -> bool:
        return self._filter.display or bool(self.grid.words)

    def show_filter(self) -> None:
        self._filter.value = str(self.grid.words)
        self._filter.display = bool(self.grid.words)
        self.grid.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        words = Words.read(event.value)
        if words != self.grid.words:
            self.grid.filter(words)
            self.draw_note()

    def on_input_submitted(self) -> None:
        self._filter.display = bool(self.grid.words)
        self.grid.focus()
        self.ask(self.grid, self.grid.words)

    def ask(self, grid: Grid, words: Words) -> None:
        """Set the filter that the database applies from the next read on."""
        grid.asking = words
        self.action_refresh()

    def action_guide(self) -> None:
        _ = self.app.push_screen(Reader(GUIDE))

    def action_problems(self) -> None:
        _ = self.app.push_screen(Reader(TextPage("Problems", [*self.problems] or ["All is well."])))


def trouble_of(error: Exception, before: Trouble | None) -> Trouble:
    """Return why nothing can be read, since the first error in a row."""
    since = before.since if before is not None else asyncio.get_running_loop().time()
    outage = not isinstance(error, RequestRefused) or error.status >= 500  # noqa: PLR2004 - server error
    return Trouble(_outage(error), since, outage)


def _outage(error: Exception) -> str:
    """Return why nothing can be read. `busy` means an unreachable database, as the connection is not shared."""
    return (
        "the database cannot be reached"
        if isinstance(error, RequestRefused) and (error.status, error.code) == (503, "busy")
        else error_text(error)
    )


def error_text(error: Exception) -> str:
    if isinstance(error, RequestRefused):
        return error.message
    if isinstance(error, HoldfastError):
        return str(error)
    return f"the database does not answer as it should: {Failure.of(error).text}"
