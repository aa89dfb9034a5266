"""The terminal application: reads one query at a time over one connection, and handles the keys."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import psycopg
from textual.app import App
from textual.binding import Binding
from textual.widgets import ContentSwitcher, Footer, Input, Static, Tab, Tabs

from holdfast._logs.failure import Failure
from holdfast._ops.caller import RequestRefused
from holdfast._ops.wording import counted
from holdfast._store.inspect import read_rights
from holdfast._top.cell import DARK, LIGHT, THEMES, TONES
from holdfast._top.dialogs import GUIDE, Confirmation, Reader
from holdfast._top.fleet import KINDS, QUEUES, WORKERS
from holdfast._top.grid import Grid
from holdfast._top.headline import Frame, Headline, course, figures, verdict, worst_first
from holdfast._top.jobs import DEAD_LETTERS, JOBS
from holdfast._top.runners import RELAYS, RUNNERS
from holdfast._top.sheet import Jump, Query, TextPage, Words

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.widgets import DataTable

    from holdfast._ops.caller import Person
    from holdfast._ops.responses.fleet import Overview
    from holdfast._ops.service import Service
    from holdfast._store.inspect import Rights
    from holdfast._top.sheet import AnySheet

# In the order of the tabs.
SHEETS: tuple[AnySheet, ...] = (QUEUES, KINDS, WORKERS, RUNNERS, RELAYS, DEAD_LETTERS, JOBS)
_LONGEST_FILTER = 200
_SILENT = RequestRefused(503, "silent", "the database does not answer")
_MAY_NOT = "this user of the database may look, and not act: acting needs the role holdfast_operator"


class Top(App[None]):
    """Shows the service's data. While the database is unreachable it reports that, keeps the last data and retries."""

    TITLE = "holdfast top"
    ENABLE_COMMAND_PALETTE = False
    CSS_PATH = Path(__file__).with_name("top.tcss")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "act('retry')", "Retry"),
        Binding("r", "act('redrive')", "Redrive"),
        Binding("r", "act('run')", "Run now"),
        Binding("c", "act('cancel')", "Cancel"),
        Binding("p", "act('pause')", "Pause/resume"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("s", "sort(1)", "Sort"),
        Binding("S", "sort(-1)", "Sort", show=False),
        Binding("o", "turn", "Turn", show=False),
        Binding("exclamation_mark", "problems", "Problems", key_display="!"),
        Binding("question_mark", "guide", "Help", key_display="?"),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", "Quit", show=False, priority=True),
        Binding("space", "refresh", "Refresh", show=False),
        Binding("t", "theme", "Theme", show=False),
        Binding("escape", "unfilter", "Drop the filter", show=False),
        Binding("tab", "sheet_by(1)", "Next", show=False, priority=True),
        Binding("shift+tab", "sheet_by(-1)", "Previous", show=False, priority=True),
        *(Binding(str(n), f"sheet('{sheet.name}')", sheet.title, show=False) for n, sheet in enumerate(SHEETS, 1)),
    ]

    def __init__(
        self, service: Service, person: Person, *, where: str, interval: float = 2.0, theme: str = DARK
    ) -> None:
        """`interval`: seconds between two reads, default 2. `where`: the database's name as shown."""
        super().__init__()
        for each in THEMES:
            self.register_theme(each)
        self.theme = theme
        self.service = service
        self.person = person
        self.where = where
        self.interval = interval
        self.patience = 5.0
        """Seconds after which a read without an answer is reported."""
        self.overview: Overview | None = None
        self.trouble: Headline | None = None
        self.rights: Rights | None = None
        self.looks = 0
        """Number of complete reads."""
        self._asked = asyncio.Event()
        self._acting = False
        self.grids = {sheet.name: Grid(sheet) for sheet in SHEETS}
        self._verdict = Static(id="verdict", markup=False)
        self._figures = Static(id="figures", markup=False)
        self._course = Static(id="course", markup=False)
        self._note = Static(id="note", markup=False)
        self._tabs = Tabs(*(Tab(f"{n} {sheet.title}", id=sheet.name) for n, sheet in enumerate(SHEETS, 1)))
        self._filter = Input(placeholder="words, or column:word", id="filter", max_length=_LONGEST_FILTER, compact=True)
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
        self._filter.display = False
        self.grid.focus()
        self.draw()
        self.run_worker(self._keep_looking(), group="look")

    @property
    def grid(self) -> Grid:
        """The visible table."""
        return self.grids[self._tabs.active or SHEETS[0].name]

    # --- reading ------------------------------------------------------------------------------------------------------

    async def _keep_looking(self) -> None:
        while True:
            self._asked.clear()
            await self._look_patiently()
            try:
                async with asyncio.timeout(self.interval):
                    await self._asked.wait()
            except TimeoutError:
                continue

    async def _look_patiently(self) -> None:
        """Read, and report it if that takes too long. Nothing else is read meanwhile."""
        looking = asyncio.create_task(self._look())
        try:
            while not (await asyncio.wait({looking}, timeout=self.patience))[0]:
                self._tell_trouble(_SILENT)
                self.draw()
        finally:
            looking.cancel()
        await looking

    async def _look(self) -> None:
        grid, asking = self.grid, self.grid.asking
        try:
            if self.rights is None:
                self.rights = await self.service.run(read_rights())
            self.overview = await self.service.overview()
            found = await grid.sheet.read(Query(self.service, self.overview, asking))
        except (RequestRefused, psycopg.Error, OSError) as error:
            self._tell_trouble(error)
        else:
            self.trouble = None
            self.looks += 1
            if asking == grid.asking:
                grid.show(found.rows, found.note, self.overview.at)
        self.draw()

    def _tell_trouble(self, error: Exception) -> None:
        now = asyncio.get_running_loop().time()
        since = self.trouble.since if self.trouble is not None else now
        outage = not isinstance(error, RequestRefused) or error.status >= 500  # noqa: PLR2004 - server error
        self.trouble = Headline(_outage(error), since, outage)

    # --- drawing ------------------------------------------------------------------------------------------------------

    def draw(self) -> None:
        frame = Frame(self._where(), self.size.width, TONES[self.theme])
        self._verdict.update(verdict(self.overview, self.trouble, asyncio.get_running_loop().time(), frame))
        if self.overview is not None:
            self._figures.update(figures(self.overview, frame))
            self._course.update(course(self.overview.minutes, frame))
        self._switcher.set_class(self.trouble is not None, "old")
        self._draw_note()

    def _where(self) -> str:
        return self.where if self.rights is None or self.rights.act else f"{self.where} (looking only)"

    def _draw_note(self) -> None:
        grid = self.grid
        if unknown := grid.unknown(grid.words):
            titles = ", ".join([column.title for column in grid.sheet.columns])
            self._note.update(f" no column is named {unknown[0]}: there are {titles}")
        elif not grid.answered:
            self._note.update(" …")
        elif not grid.lines and not grid.words:
            self._note.update(f" {grid.sheet.empty}")
        else:
            many = f"{len(grid.shown)} of " if grid.words else ""
            filtered = f"filter {grid.words}" if grid.words else ""
            self._note.update(
                " "
                + " · ".join(filter(None, (f"{many}{counted(len(grid.lines), grid.sheet.one)}", filtered, grid.note)))
            )

    def on_resize(self) -> None:
        self.draw()

    # --- choosing the table -------------------------------------------------------------------------------------------

    def on_tabs_tab_activated(self, event: Tabs.TabActivated) -> None:
        self._switcher.current = event.tab.id
        self._filter.value = str(self.grid.words)
        self._filter.display = bool(self.grid.words)
        self.grid.focus()
        self.refresh_bindings()
        self.action_refresh()

    def action_sheet(self, name: str) -> None:
        self._tabs.active = name

    def action_sheet_by(self, step: int) -> None:
        names = list(self.grids)
        self._tabs.active = names[(names.index(self.grid.sheet.name) + step) % len(names)]

    def action_refresh(self) -> None:
        self._draw_note()
        self._asked.set()

    def action_sort(self, step: int) -> None:
        self.grid.sort_by((self.grid.sorted_by + step) % len(self.grid.sheet.columns))

    def action_turn(self) -> None:
        self.grid.sort_by(self.grid.sorted_by)

    def action_theme(self) -> None:
        self.theme = LIGHT if self.theme == DARK else DARK
        for grid in self.grids.values():
            grid.rebuild()
        self.draw()

    # --- filtering ----------------------------------------------------------------------------------------------------

    def action_filter(self) -> None:
        self._filter.display = True
        self._filter.focus()

    def action_unfilter(self) -> None:
        self._filter.value = ""
        self._filter.display = False
        self.grid.focus()
        self._ask(self.grid, Words())

    def on_input_changed(self, event: Input.Changed) -> None:
        words = Words.read(event.value)
        if words != self.grid.words:
            self.grid.filter(words)
            self._draw_note()

    def on_input_submitted(self) -> None:
        self._filter.display = bool(self.grid.words)
        self.grid.focus()
        self._ask(self.grid, self.grid.words)

    def _ask(self, grid: Grid, words: Words) -> None:
        """Set the filter that the database applies from the next read on."""
        grid.asking = words
        self.action_refresh()

    # --- opening and acting -------------------------------------------------------------------------------------------

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        event.stop()
        if (row := self.grid.chosen) is not None and self.overview is not None:
            self.run_worker(self._open(row, self.overview), group="open", exclusive=True)

    async def _open(self, row: object, overview: Overview) -> None:
        try:
            opened = await self.grid.sheet.open(Query(self.service, overview, self.grid.asking), row)
        except (RequestRefused, psycopg.Error, OSError) as error:
            self._refuse(error)
            return
        match opened:
            case TextPage():
                await self.push_screen(Reader(opened))
            case Jump(name, words):
                self.grids[name].filter(words)
                self._ask(self.grids[name], words)
                self.action_sheet(name)

    def action_guide(self) -> None:
        _ = self.push_screen(Reader(GUIDE))

    def action_problems(self) -> None:
        problems = worst_first(self.overview.problems) if self.overview is not None else []
        lines = [f"{problem.severity:<9} {problem.text}" for problem in problems]
        _ = self.push_screen(Reader(TextPage("Problems", lines or ["All is well."])))

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
        action = next(action for action in self.grid.sheet.actions if action.name == name)
        self._acting = True
        try:
            plan = await action.plan(self.service, self.person, row)
            if not await self.push_screen_wait(Confirmation(plan)):
                return
            self.notify(await plan.act(), markup=False)
        except (RequestRefused, psycopg.Error, OSError) as error:
            self._refuse(error)
        finally:
            self._acting = False
        self.action_refresh()

    def _refuse(self, error: Exception) -> None:
        self.notify(_said(error), severity="error", markup=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer only the actions of the visible table, and no change of table below a dialog."""
        if action == "act":
            return any(offered.name in parameters for offered in self.grid.sheet.actions)
        if action == "sheet_by":
            return len(self.screen_stack) == 1
        return True


def _outage(error: Exception) -> str:
    """Return why nothing can be read. `busy` means an unreachable database, as the connection is not shared."""
    return (
        "the database cannot be reached"
        if isinstance(error, RequestRefused) and (error.status, error.code) == (503, "busy")
        else _said(error)
    )


def _said(error: Exception) -> str:
    if isinstance(error, RequestRefused):
        return error.message
    return f"the database does not answer as it should: {Failure.of(error).text}"
