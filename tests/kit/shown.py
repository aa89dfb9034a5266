"""A plugin of pytest: prints what tests measured at the end of a run, also when they ran in other processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

SHOWN = "shown at the end"
"""The name of a property that is printed: `record_property(SHOWN, "…")`."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == SHOWN:
                terminalreporter.write_line(str(value))
