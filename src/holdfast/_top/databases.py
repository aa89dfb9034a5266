"""The list of several databases. Each is read by its own task, so that one that does not answer delays no other."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from rich.text import Text
from textual.widgets import Footer, Static

from holdfast._ops.wording import compact, counted, plain, span
from holdfast._top.cell import TONES, Cell, duration, number, paint, word
from holdfast._top.database import DatabaseScreen
from holdfast._top.grid import Grid
from holdfast._top.headline import worst_first
from holdfast._top.screen import DatabaseReading, TableScreen
from holdfast._top.sheet import Column, Table, figures

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from textual.app import ComposeResult
    from textual.widgets import DataTable

    from holdfast._ops.caller import Person
    from holdfast._ops.responses.fleet import Overview
    from holdfast._ops.wording import Tone
    from holdfast._top.cell import Palette
    from holdfast._top.screen import ShownDatabase

_DRAW_SECONDS = 0.05
_REASONS = 2


def problems_of(reading: DatabaseReading) -> Iterator[str]:
    """Yield all that is wrong in a database, the worst first."""
    if reading.trouble is not None:
        passed = asyncio.get_running_loop().time() - reading.trouble.since
        yield f"{plain(reading.trouble.message, 300)} ({span(max(1.0, passed))})"
    elif reading.overview is not None:
        yield from (plain(problem.text, 300) for problem in worst_first(reading.overview.problems))


class DatabaseRow(NamedTuple):
    database: ShownDatabase
    overview: Overview | None
    """As it last answered."""
    is_silent: bool
    """It does not answer: the figures are old."""
    message: str

    @property
    def state(self) -> Cell:
        if self.is_silent:
            return word("not answering", "bad")
        if self.overview is None:
            return word("asking", "dim")
        return word("draining", "warn") if self.database.draining else word("serving", "good")

    @property
    def tone(self) -> Tone:
        if self.is_silent:
            return "bad"
        critical = self.overview is not None and any(p.severity == "critical" for p in self.overview.problems)
        return "bad" if critical else "warn"

    def figure(self, value: int | None, tone: Tone = "plain") -> Cell:
        return number(value, "dim" if self.is_silent else tone)

    def oldest(self) -> Cell:
        seconds = self.overview.depth.oldest_due_seconds if self.overview else None
        return duration(seconds, "dim" if self.is_silent else "plain")

    def workers(self) -> Cell:
        workers = self.overview.workers if self.overview else None
        if workers == 0:
            return Cell("none", 0, "dim" if self.is_silent else "bad")
        return self.figure(workers)


def _message_cell(row: DatabaseRow) -> Cell:
    return Cell(row.message, row.message.casefold(), row.tone) if row.message else word(None)


DATABASES: Table[DatabaseRow] = Table(
    name="databases",
    one="database",
    row_id=lambda row: row.database.name,
    columns=(
        Column("database", lambda row, _: word(row.database.name)),
        Column("state", lambda row, _: row.state),
        figures("due", lambda row, _: row.figure(row.overview.depth.due if row.overview else None)),
        figures("oldest", lambda row, _: row.oldest()),
        figures("running", lambda row, _: row.figure(row.overview.depth.processing if row.overview else None)),
        figures("failed/h", lambda row, _: row.figure(row.overview.failed if row.overview else None, "bad")),
        figures("workers", lambda row, _: row.workers()),
        Column("message", lambda row, _: _message_cell(row)),
        Column("where", lambda row, _: word(row.database.where)),
    ),
    sorted_by="database",
    falling=False,
    empty="No databases.",
)


class DatabasesScreen(TableScreen):
    """Lists the databases. Enter opens one, and nothing is read for the list until it is visible again."""

    def __init__(self, databases: Sequence[ShownDatabase], person: Person, interval: float) -> None:
        """`interval`: seconds between two reads of a database."""
        super().__init__(interval)
        self.hint = "Enter opens one"
        self._readings = [DatabaseReading(database) for database in databases]
        self.person = person
        self.patience = 2.0
        self._is_drawing = False
        self._verdict = Static(id="verdict", markup=False)
        self._figures = Static(id="figures", markup=False)
        self._grid = Grid(DATABASES)

    def compose(self) -> ComposeResult:
        yield self._verdict
        yield self._figures
        yield self._grid
        yield self._note
        yield self._filter
        yield Footer()

    @property
    def grid(self) -> Grid:
        return self._grid

    @property
    def tables(self) -> Iterable[Grid]:
        return (self._grid,)

    @property
    def problems(self) -> Iterable[str]:
        return [f"{reading.database.name}: {problem}" for reading in self.readings for problem in problems_of(reading)]

    # --- reading ------------------------------------------------------------------------------------------------------

    @property
    def readings(self) -> Sequence[DatabaseReading]:
        return self._readings

    async def read(self, reading: DatabaseReading) -> None:
        reading.overview = await reading.database.service.overview()

    # --- drawing ------------------------------------------------------------------------------------------------------

    def redraw(self) -> None:
        """Draw once for many answers that come at about the same time."""
        if not self._is_drawing:
            self._is_drawing = True
            self.set_timer(_DRAW_SECONDS, self.draw)

    def draw(self) -> None:
        self._is_drawing = False
        palette = TONES[self.app.theme]
        lines = [*self._lines(palette)]
        for line in lines:
            line.truncate(self.size.width, overflow="ellipsis")
        self._verdict.update(Text("\n").join(lines))
        self._figures.update(self._sums(palette))
        if self._grid.ordered_columns:
            rows = [
                DatabaseRow(
                    reading.database, reading.overview, reading.trouble is not None, next(problems_of(reading), "")
                )
                for reading in self.readings
            ]
            self._grid.show(rows, "", datetime.now(UTC))
        self.draw_note()

    def _lines(self, palette: Palette) -> Iterator[Text]:
        """Yield the status, and the reasons of the first databases that do not answer."""
        tone: Tone
        silent = [reading for reading in self.readings if reading.trouble is not None]
        troubled = sum(reading.overview is not None and not reading.overview.ok for reading in self.readings)
        many = len(self.readings)
        if silent:
            do = "does" if len(silent) == 1 else "do"
            summary, tone = f"✘ {len(silent)} of {many} databases {do} not answer", "bad"
        elif any(reading.overview is None for reading in self.readings):
            summary, tone = f"… asking {counted(many, 'database')}", "dim"
        elif troubled:
            summary, tone = f"! {counted(troubled, 'database')} of {many} with problems", "warn"
        else:
            summary, tone = f"✔ all is well in {counted(many, 'database')}", "good"
        yield paint(f" {summary}", tone, palette, bold=tone != "dim")
        for reading in silent[:_REASONS]:
            yield paint(f"   {reading.database.name}: {next(problems_of(reading), '')}", "bad", palette)
        if len(silent) > _REASONS:
            yield paint(f"   and {len(silent) - _REASONS} more: press !", "dim", palette)

    def _sums(self, palette: Palette) -> Text:
        """Return the figures of all databases that answer."""
        found = [reading.overview for reading in self.readings if reading.overview and reading.trouble is None]
        due, oldest = (
            sum(one.depth.due for one in found),
            max((one.depth.oldest_due_seconds for one in found), default=0),
        )
        failed = sum(one.failed for one in found)
        facts: list[tuple[str, Tone]] = [
            (f"{compact(due)} due", "plain"),
            (f"oldest {span(oldest)}" if due else "none waits", "plain"),
            (f"{compact(sum(one.depth.processing for one in found))} running", "plain"),
            (f"{compact(failed)} failed within the hour", "bad" if failed else "plain"),
        ]
        return Text(" ") + Text(" · ").join(paint(summary, tone, palette) for summary, tone in facts)

    # --- opening ------------------------------------------------------------------------------------------------------

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        event.stop()
        row: DatabaseRow | None = self._grid.chosen
        if row is not None:
            self.may_read.clear()
            opened = DatabaseScreen(row.database, self.person, self.interval, is_one_of_several=True)
            _ = self.app.push_screen(opened)
