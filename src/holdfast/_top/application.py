"""The terminal application: one database, or the list of several, each of which can be opened."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import App
from textual.binding import Binding

from holdfast._top.cell import THEME
from holdfast._top.database import DatabaseScreen
from holdfast._top.databases import DatabasesScreen
from holdfast._top.screen import TableScreen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.binding import BindingType

    from holdfast._ops.caller import Person
    from holdfast._top.screen import ShownDatabase


class Top(App[None]):
    """Shows the data of its services."""

    TITLE = "holdfast top"
    ENABLE_COMMAND_PALETTE = False
    CSS_PATH = Path(__file__).with_name("top.tcss")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", "Quit", show=False, priority=True),
    ]

    def __init__(self, databases: Sequence[ShownDatabase], person: Person, *, interval: float = 2.0) -> None:
        """`interval`: seconds between two reads, default 2."""
        super().__init__()
        self.register_theme(THEME)
        self.theme = THEME.name
        self.databases = databases
        self.person = person
        self.interval = interval

    def get_default_screen(self) -> TableScreen:
        """Return the screen of the only database, or the list of several."""
        if len(self.databases) == 1:
            return DatabaseScreen(self.databases[0], self.person, self.interval)
        return DatabasesScreen(self.databases, self.person, self.interval)

    @property
    def view(self) -> TableScreen:
        return next(screen for screen in reversed(self.screen_stack) if isinstance(screen, TableScreen))

    def exit(self, *given: Any, **options: Any) -> None:
        """End the application, also while a database does not answer."""
        for database in self.databases:
            database.service.sever()
        super().exit(*given, **options)
