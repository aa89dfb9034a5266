"""The application of `holdfast top` without a terminal, looking at a real database again and again."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast._ops.caller import Person, Role
from holdfast._ops.service import Service
from holdfast._top.application import Top
from holdfast._top.database import DatabaseScreen
from holdfast._top.screen import ShownDatabase
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from textual.pilot import Pilot

WHO = Person("cli:tester", Role.DEVELOPER)
SMALL = (80, 24)


class RecordingTop(Top):
    """Keeps the messages shown to the user; on the screen they disappear after a while."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.reported: list[str] = []

    def notify(self, message: str, **options: Any) -> None:
        self.reported.append(message)
        super().notify(message, **options)


class Watched(NamedTuple):
    top: RecordingTop
    pilot: Pilot[None]

    @property
    def screen(self) -> DatabaseScreen:
        """The screen of a database, below any dialog."""
        assert isinstance(self.top.view, DatabaseScreen)
        return self.top.view

    @property
    def cells(self) -> list[dict[str, str]]:
        """The rows of the table that is seen, by column, as they are shown."""
        grid = self.top.view.grid
        titles = [column.title for column in grid.table.columns]
        return [
            dict(zip(titles, (str(cell) for cell in grid.get_row_at(row)), strict=True))
            for row in range(grid.row_count)
        ]

    def column(self, title: str) -> list[str]:
        return [row[title] for row in self.cells]

    @property
    def text(self) -> str:
        """The whole screen."""
        return "\n".join(strip.text for strip in self.top.screen._compositor.render_strips())

    @property
    def reported(self) -> list[str]:
        return self.top.reported

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def look(self) -> None:
        """Wait for a look that began after this."""
        view = self.top.view
        seen = view.looks
        await self.press("space")
        await until(lambda: view.looks > seen + 1)
        await self.pilot.pause()


@asynccontextmanager
async def watching(
    database: str, *keys: str, size: tuple[int, int] = SMALL, looks: bool = True, patience: float = 5.0, **options: Any
) -> AsyncIterator[Watched]:
    """Yield it when it has looked for the first time and these keys were pressed."""
    async with Service(database, connections=1) as service:
        top = RecordingTop([ShownDatabase(service, "shop@test")], WHO, **{"interval": 0.2, **options})
        async with top.run_test(size=size) as pilot:
            watched = Watched(top, pilot)
            watched.screen.patience = patience
            await watched.press(*keys)
            if looks:
                await watched.look()
            yield watched
