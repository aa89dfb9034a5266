"""The screen of one database: reads one query at a time over one connection, and handles the keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding
from textual.widgets import ContentSwitcher, Footer, Static, Tab, Tabs

from holdfast._store.inspect import read_rights
from holdfast._top.dialogs import Confirmation, Reader
from holdfast._top.fleet import KINDS, QUEUES, WORKERS
from holdfast._top.grid import Grid
from holdfast._top.headline import course, figures, verdict
from holdfast._top.jobs import DEAD_LETTERS, JOBS
from holdfast._top.runners import RELAYS, RUNNERS
from holdfast._top.screen import FAILURES, DatabaseReading, TableScreen, error_text
from holdfast._top.sheet import Jump, Query, TextPage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.widgets import DataTable

    from holdfast._ops.caller import Person
    from holdfast._ops.responses.fleet import Overview
    from holdfast._store.inspect import Rights
    from holdfast._top.screen import ShownDatabase
    from holdfast._top.sheet import AnySheet

# In the order of the tabs.
SHEETS: tuple[AnySheet, ...] = (QUEUES, KINDS, WORKERS, RUNNERS, RELAYS, DEAD_LETTERS, JOBS)
_BY_NAME = {sheet.name: sheet for sheet in SHEETS}
_MAY_NOT = "this user of the database may look, and not act: acting needs the role holdfast_operator"


class DatabaseScreen(TableScreen, inherit_bindings=False):
    """Shows the service's data. While the database is unreachable it reports that, keeps the last data and retries."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "act('retry')", "Retry"),
        Binding("r", "act('run')", "Run now"),
        Binding("c", "act('cancel')", "Cancel"),
        Binding("p", "act('pause')", "Pause/resume"),
        *TableScreen.BINDINGS,
        Binding("backspace", "back", "Databases", show=False),
        Binding("tab", "sheet_by(1)", "Next", show=False, priority=True),
        Binding("shift+tab", "sheet_by(-1)", "Previous", show=False, priority=True),
        *(Binding(str(n), f"sheet('{sheet.name}')", sheet.title, show=False) for n, sheet in enumerate(SHEETS, 1)),
    ]

    def __init__(
        self, database: ShownDatabase, person: Person, interval: float, *, is_one_of_several: bool = False
    ) -> None:
        """`interval`: seconds between two reads. `is_one_of_several`: whether it was opened from the list."""
        self.reading = DatabaseReading(database)
        super().__init__([self.reading], interval)
        self.service = database.service
        self.person = person
        self.where = database.shown
        self.is_one_of_several = is_one_of_several
        self.hint = "Esc returns to the list" if is_one_of_several else ""
        self.rights: Rights | None = None
        self._acting = False
        self.grids = {sheet.name: Grid(sheet) for sheet in SHEETS}
        self._verdict = Static(id="verdict", markup=False)
        self._figures = Static(id="figures", markup=False)
        self._course = Static(id="course", markup=False)
        self._tabs = Tabs(*(Tab(f"{n} {sheet.title}", id=sheet.name) for n, sheet in enumerate(SHEETS, 1)))
        self._switcher = ContentSwitcher(*self.grids.values(), initial=SHEETS[0].name)

    def compose(self) -> ComposeResult:
        yield self._verdict
        yield self._figures
        yield self._course
        yield self._tabs
        yield self._switcher
        yield self._note
        yield self._filter
        yield Footer()

    def on_mount(self) -> None:
        self._tabs.can_focus = False

    @property
    def grid(self) -> Grid:
        return self.grids[self._tabs.active or SHEETS[0].name]

    @property
    def sheet(self) -> AnySheet:
        """The definition of the visible table."""
        return _BY_NAME[self.grid.table.name]

    @property
    def problems(self) -> Iterable[str]:
        found = self.reading.overview.problems if self.reading.overview is not None else []
        return [f"{problem.severity:<9} {problem.text}" for problem in found]

    async def read(self, reading: DatabaseReading) -> None:
        grid, sheet, asking = self.grid, self.sheet, self.grid.asking
        if self.rights is None:
            self.rights = await self.service.run(read_rights())
        reading.overview = await self.service.overview()
        found = await sheet.read(Query(self.service, reading.overview, asking))
        if asking == grid.asking:
            grid.show(found.rows, found.note, reading.overview.at)

    def draw(self) -> None:
        overview, trouble, width = self.reading.overview, self.reading.trouble, self.size.width
        where = self.where if self.rights is None or self.rights.act else f"{self.where} (looking only)"
        self._verdict.update(verdict(overview, trouble, where, width))
        if overview is not None:
            self._figures.update(figures(overview, width))
            self._course.update(course(overview.minutes, width))
        self._switcher.set_class(trouble is not None, "old")
        self.draw_note()

    def on_tabs_tab_activated(self, event: Tabs.TabActivated) -> None:
        self._switcher.current = event.tab.id
        self.show_filter()
        self.refresh_bindings()
        self.action_refresh()

    def action_sheet(self, name: str) -> None:
        self._tabs.active = name

    def action_sheet_by(self, step: int) -> None:
        names = list(self.grids)
        self._tabs.active = names[(names.index(self.sheet.name) + step) % len(names)]

    def action_refresh(self) -> None:
        self.draw_note()
        super().action_refresh()

    def action_escape(self) -> None:
        """Drop the filter. Without one, go back to the list."""
        if self.is_one_of_several and not self.is_filtering:
            self.action_back()
        else:
            super().action_escape()

    def action_back(self) -> None:
        if self.reading.trouble is not None:
            self.service.sever()
        _ = self.app.pop_screen()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        event.stop()
        if (row := self.grid.chosen) is not None and self.reading.overview is not None:
            self.run_worker(self._open(row, self.reading.overview), group="open", exclusive=True)

    async def _open(self, row: object, overview: Overview) -> None:
        try:
            opened = await self.sheet.open(Query(self.service, overview, self.grid.asking), row)
        except FAILURES as error:
            self._refuse(error)
            return
        match opened:
            case TextPage():
                await self.app.push_screen(Reader(opened))
            case Jump(name, words):
                self.grids[name].filter(words)
                self.ask(self.grids[name], words)
                self.action_sheet(name)

    def action_act(self, name: str) -> None:
        row = self.grid.chosen
        if row is None:
            return
        if self.rights is not None and not self.rights.act:
            self.notify(_MAY_NOT, severity="error", markup=False)
            return
        if self._acting:
            self.notify("still at work on the last one", severity="warning", markup=False)
            return
        self.run_worker(self._carry_out(name, row), group="act")

    async def _carry_out(self, name: str, row: object) -> None:
        action = next(action for action in self.sheet.actions if action.name == name)
        self._acting = True
        try:
            plan = await action.plan(self.service, self.person, row)
            if not await self.app.push_screen_wait(Confirmation(plan)):
                return
            self.notify(await plan.act(), markup=False)
        except FAILURES as error:
            self._refuse(error)
        finally:
            self._acting = False
        self.action_refresh()

    def _refuse(self, error: Exception) -> None:
        self.notify(error_text(error), severity="error", markup=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer only the actions of the visible table, and the way back only if there is a list."""
        if action == "act":
            return any(offered.name in parameters for offered in self.sheet.actions)
        if action == "back":
            return self.is_one_of_several
        return True
