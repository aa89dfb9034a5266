"""Screens above the tables: a confirmation and a text page."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from holdfast._top.sheet import TextPage

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from holdfast._top.sheet import Plan


class Confirmation(ModalScreen[bool]):
    """Asks before an action. Only `y` or the Yes button confirms."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("y", "answer(True)", "Yes"),
        ("n", "answer(False)", "No"),
        ("escape", "answer(False)", "No"),
        ("left", "app.focus_previous", "Previous"),
        ("right", "app.focus_next", "Next"),
    ]

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Text(self.plan.question, style="bold"), classes="title", markup=False)
            yield Static(self.plan.detail, markup=False)
            with Horizontal():
                yield Button(Text("No (n)"), id="no", compact=True)
                yield Button(Text("Yes (y)"), id="yes", compact=True, variant="primary")

    def on_mount(self) -> None:
        self.query_one("#no").focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        _ = self.dismiss(event.button.id == "yes")

    def action_answer(self, answer: bool) -> None:  # noqa: FBT001 - bound to a key
        _ = self.dismiss(answer)


class Reader(ModalScreen[None]):
    """Shows a text page, which may be longer than the screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "close", "Close"),
        ("q", "close", "Close"),
        ("enter", "close", "Close"),
    ]

    def __init__(self, page: TextPage) -> None:
        super().__init__()
        self.page = page

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog page"):
            yield Static(Text(self.page.title, style="bold"), classes="title", markup=False)
            with VerticalScroll():
                yield Static(Text("\n".join(self.page.lines)), markup=False)
            yield Static("↑ ↓ scroll · Esc closes", classes="hint", markup=False)

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()

    def action_close(self) -> None:
        _ = self.dismiss()


GUIDE = TextPage(
    "holdfast top",
    (
        "Looking",
        "  1 … 7, Tab     the tables",
        "  ↑ ↓ PgUp PgDn  move; ← → more columns",
        "  Enter          more of a row, or its jobs; a database of the list",
        "  Esc, Backspace back to the list of databases",
        "  !              everything that is wrong",
        "  space          look at once",
        "  q              quit",
        "",
        "Sorting and filtering",
        "  s, S           sort by the next, the previous column; or click its head",
        "  o              the other way round",
        "  /              filter by words; column:word looks in one column;",
        "                 Enter keeps it, Esc drops it",
        "  In Jobs, status: kind: queue: error: order_key: unique_key: text:",
        "  ask the database for all jobs, on Enter, by the whole value;",
        "  text: looks into payloads.",
        "",
        "Acting: asked first, and written into the audit table",
        "  r              jobs: retry a dead letter; dead letters: retry the group;",
        "                 runners: run now",
        "  c              jobs: cancel",
        "  p              queues, runners, relays: pause or resume",
        "",
        "done/h, failed/h: what ended within the hour. p95: from due to ended.",
        "limit, rate: `own` is each worker's own setting. Live jobs are counted",
        "every few seconds, not at every look. The clock is PostgreSQL's.",
    ),
)
