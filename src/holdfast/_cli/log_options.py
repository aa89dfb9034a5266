"""The log of a command that runs handlers: its options, and its start."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from holdfast._logs import log as logs
from holdfast._logs.log import Log

if TYPE_CHECKING:
    import argparse

    from holdfast._model.settings import Settings

log = Log(__name__)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--log-format", choices=logs.FORMATS, help="default: HOLDFAST_LOG_FORMAT, else auto")
    parser.add_argument("--log-level", choices=logs.LEVELS, help="default: HOLDFAST_LOG_LEVEL, else info")


def start_log(arguments: argparse.Namespace, settings: Settings) -> None:
    """Log to standard error, starting with the notes on the settings."""
    chosen = cast("logs.Format", arguments.log_format or settings.log_format)
    logs.configure(chosen, arguments.log_level or settings.log_level)
    for note in settings.notes:
        log.warning("settings: %s", note)
