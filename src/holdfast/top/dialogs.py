"""What lies over the tables for a while: a question that needs a yes, and a page to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Static

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from holdfast.top.sheet import Page, Plan


class Confirmation(ModalScreen[bool]):
    """Asks before something is done. Nothing is done but by `y` or the button that says so."""

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

    def action_answer(self, answer: bool) -> None:  # noqa: FBT001 - a key says it
        _ = self.dismiss(answer)


class Reader(ModalScreen[None]):
    """Shows a page, which may be longer than the screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "close", "Close"),
        ("q", "close", "Close"),
        ("enter", "close", "Close"),
    ]

    def __init__(self, page: Page) -> None:
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
