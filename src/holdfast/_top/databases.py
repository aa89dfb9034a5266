"""The list of several databases. Each is read by its own task, so that one that does not answer delays no other."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.text import Text
from textual.widgets import Footer, Static

from holdfast._ops.wording import compact, counted, plain, span
from holdfast._top.cell import Cell, duration, number, paint, word
from holdfast._top.database import DatabaseScreen
from holdfast._top.grid import Grid
from holdfast._top.screen import DatabaseReading, TableScreen
from holdfast._top.sheet import Column, Table, figures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from textual.app import ComposeResult
    from textual.widgets import DataTable

    from holdfast._ops.caller import Person
    from holdfast._ops.responses.fleet import Overview
    from holdfast._ops.wording import Tone
    from holdfast._top.screen import ShownDatabase

_DRAW_SECONDS = 0.05
_REASONS = 2


def problems_of(reading: DatabaseReading) -> Iterator[str]:
    """Yield all that is wrong in a database, the worst first."""
    if reading.trouble is not None:
        yield reading.trouble.text
    elif reading.overview is not None:
        yield from (plain(problem.text, 300) for problem in reading.overview.problems)


def _state(reading: DatabaseReading) -> Cell:
    if reading.trouble is not None:
        return word("not answering", "bad")
    if reading.overview is None:
        return word("asking", "dim")
    return word("draining", "warn") if reading.database.draining else word("serving", "good")


def _tone(reading: DatabaseReading, tone: Tone = "plain") -> Tone:
    """Return the tone of a figure. That of a database that does not answer is old."""
    return "dim" if reading.trouble is not None else tone


def _figure(title: str, value: Callable[[Overview], int], tone: Tone = "plain") -> Column[DatabaseReading]:
    return figures(title, lambda row, _: number(value(row.overview) if row.overview else None, _tone(row, tone)))


def _oldest(reading: DatabaseReading) -> Cell:
    return duration(reading.overview.depth.oldest_due_seconds if reading.overview else None, _tone(reading))


def _workers(reading: DatabaseReading) -> Cell:
    workers = reading.overview.workers if reading.overview else None
    return Cell("none", 0, _tone(reading, "bad")) if workers == 0 else number(workers, _tone(reading))


def _message(reading: DatabaseReading) -> Cell:
    message = next(problems_of(reading), "")
    problems = reading.overview.problems if reading.overview else ()
    is_bad = reading.trouble is not None or any(problem.severity == "critical" for problem in problems)
    return Cell(message, message.casefold(), "bad" if is_bad else "warn") if message else word(None)


DATABASES: Table[DatabaseReading] = Table(
    name="databases",
    one="database",
    row_id=lambda row: row.database.name,
    columns=(
        Column("database", lambda row, _: word(row.database.name)),
        Column("state", lambda row, _: _state(row)),
        _figure("due", lambda overview: overview.depth.due),
        figures("oldest", lambda row, _: _oldest(row)),
        _figure("running", lambda overview: overview.depth.processing),
        _figure("failed/h", lambda overview: overview.failed, "bad"),
        figures("workers", lambda row, _: _workers(row)),
        Column("message", lambda row, _: _message(row)),
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
        super().__init__([DatabaseReading(database) for database in databases], interval)
        self.hint = "Enter opens one"
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
    def problems(self) -> Iterable[str]:
        return [f"{reading.database.name}: {problem}" for reading in self.readings for problem in problems_of(reading)]

    async def read(self, reading: DatabaseReading) -> None:
        reading.overview = await reading.database.service.overview()

    def redraw(self) -> None:
        """Draw once for many answers that come at about the same time."""
        if not self._is_drawing:
            self._is_drawing = True
            self.set_timer(_DRAW_SECONDS, self.draw)

    def draw(self) -> None:
        self._is_drawing = False
        lines = [*self._lines()]
        for line in lines:
            line.truncate(self.size.width, overflow="ellipsis")
        self._verdict.update(Text("\n").join(lines))
        self._figures.update(self._sums())
        if self._grid.ordered_columns:
            self._grid.show(self.readings, "", datetime.now(UTC))
        self.draw_note()

    def _lines(self) -> Iterator[Text]:
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
        yield paint(f" {summary}", tone, bold=tone != "dim")
        for reading in silent[:_REASONS]:
            yield paint(f"   {reading.database.name}: {next(problems_of(reading), '')}", "bad")
        if len(silent) > _REASONS:
            yield paint(f"   and {len(silent) - _REASONS} more: press !", "dim")

    def _sums(self) -> Text:
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
        return Text(" ") + Text(" · ").join(paint(summary, tone) for summary, tone in facts)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        event.stop()
        row: DatabaseReading | None = self._grid.chosen
        if row is not None:
            self.may_read.clear()
            opened = DatabaseScreen(row.database, self.person, self.interval, is_one_of_several=True)
            _ = self.app.push_screen(opened)
