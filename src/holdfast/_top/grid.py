"""A table on the screen: sortable by any column, filterable, with the cursor staying on its row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rich.cells import cell_len
from rich.text import Text
from textual.widgets import DataTable

from holdfast._top.cell import paint
from holdfast._top.sheet import Words

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from holdfast._top.cell import Cell
    from holdfast._top.sheet import AnyTable


class Line(NamedTuple):
    """A row as read, and its cells by column."""

    row: Any
    key: str
    cells: tuple[Cell, ...]


class Grid(DataTable[Text]):
    def __init__(self, table: AnyTable) -> None:
        super().__init__(id=table.name, cursor_type="row", zebra_stripes=True)
        self.table = table
        self.words = Words()
        """The typed filter, applied to the loaded rows at once."""
        self.asking = Words()
        """The filter that the database applies."""
        self.note = ""
        self.answered = False
        self.lines: list[Line] = []
        """All loaded rows."""
        self.shown: list[Line] = []
        """The rows that pass the filter, sorted."""
        self.sorted_by = [column.title for column in table.columns].index(table.sorted_by)
        self.falling = table.falling

    def on_mount(self) -> None:
        self.rebuild()

    @property
    def chosen(self) -> Any:
        """The row under the cursor, or None."""
        return self.shown[self.cursor_row].row if self.cursor_row < len(self.shown) else None

    def show(self, rows: Sequence[Any], note: str, now: datetime) -> None:
        self.note = note
        self.answered = True
        self.lines = [
            Line(row, self.table.row_id(row), tuple(column.cell(row, now) for column in self.table.columns))
            for row in rows
        ]
        self.draw()

    def filter(self, words: Words) -> None:
        self.words = words
        self.draw()

    def sort_by(self, place: int) -> None:
        """Sort by a column. The same column again reverses the order."""
        self.falling = not self.falling if place == self.sorted_by else self._starts_falling(place)
        self.sorted_by = place
        self.rebuild()

    def unknown(self, words: Words) -> list[str]:
        """Return the names in a filter that match no column."""
        titles = {column.title for column in self.table.columns}
        return [name for name in words.fields if name not in titles and name not in self.table.asks]

    def rebuild(self) -> None:
        """Redraw everything, after a change of column labels or colours."""
        self.clear(columns=True)
        for place, column in enumerate(self.table.columns):
            arrow = ("▼" if self.falling else "▲") if place == self.sorted_by else " "
            self.add_column(
                Text(f"{column.title}{arrow}", justify="right" if column.right else "left"), key=column.title
            )
        self.draw()

    def draw(self) -> None:
        """Update only the changed cells, so that the table does not scroll."""
        kept = self.shown[self.cursor_row].key if self.cursor_row < len(self.shown) else None
        self.shown = self._ordered()
        with self.app.batch_update():
            changed: set[int] = set()
            for place, line in enumerate(self.shown[: self.row_count]):
                changed |= self._update(place, line)
            for place in range(self.row_count, len(self.shown)):
                self.add_row(*self._texts(self.shown[place]), key=str(place))
            for place in range(self.row_count - 1, len(self.shown) - 1, -1):
                self.remove_row(str(place))
            self._fit(changed)
        found = next((place for place, line in enumerate(self.shown) if line.key == kept), None)
        if found is not None and found != self.cursor_row:
            self.move_cursor(row=found, animate=False)

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        event.stop()
        self.sort_by(event.column_index)

    def _ordered(self) -> list[Line]:
        titles = [column.title for column in self.table.columns]
        local = Words(self.words.anywhere, {n: v for n, v in self.words.fields.items() if n not in self.table.asks})
        kept = [
            line for line in self.lines if local.match(dict(zip(titles, (c.text for c in line.cells), strict=True)))
        ]
        kept.sort(key=lambda line: line.key)
        known = [line for line in kept if line.cells[self.sorted_by].order is not None]
        known.sort(key=lambda line: line.cells[self.sorted_by].order, reverse=self.falling)
        return known + [line for line in kept if line.cells[self.sorted_by].order is None]

    def _update(self, place: int, line: Line) -> set[int]:
        """Write the changed cells and return their columns."""
        changed = set()
        for number, (before, after) in enumerate(zip(self.get_row(str(place)), self._texts(line), strict=True)):
            if before != after or before.style != after.style:
                self.update_cell(str(place), self.table.columns[number].title, after)
                changed.add(number)
        return changed

    def _fit(self, columns: set[int]) -> None:
        """Fit each column to its widest cell. Updating one cell makes the table measure the whole column."""
        for number in columns if self.shown else ():
            widest = max(range(len(self.shown)), key=lambda place: cell_len(self.shown[place].cells[number].text))
            key, title = str(widest), self.table.columns[number].title
            self.update_cell(key, title, self.get_cell(key, title), update_width=True)

    def _texts(self, line: Line) -> list[Text]:
        texts = []
        for column, cell in zip(self.table.columns, line.cells, strict=True):
            text = paint(cell.text, cell.tone)
            text.justify = "right" if column.right else "left"
            text.no_wrap = True
            texts.append(text)
        return texts

    def _starts_falling(self, place: int) -> bool:
        """Return whether a column sorts descending first: numbers do, names do not."""
        return self.table.columns[place].right
