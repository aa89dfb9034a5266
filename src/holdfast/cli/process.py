"""What a command that runs handlers needs of its process: a log, signals, and an end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, cast

from holdfast import logs

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from holdfast.settings import Settings

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Threads that are idle end within this much time; those of handlers that ignored their signal never may.
_LAST_SECONDS = 1.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--log-format", choices=logs.FORMATS, help="default: HOLDFAST_LOG_FORMAT, else auto")
    parser.add_argument("--log-level", choices=logs.LEVELS, help="default: HOLDFAST_LOG_LEVEL, else info")


def start_log(arguments: argparse.Namespace, settings: Settings) -> None:
    """Log to standard error, and begin with what is odd about the settings."""
    chosen = cast("logs.Format", arguments.log_format or settings.log_format)
    logs.configure(chosen, arguments.log_level or settings.log_level)
    for note in settings.notes:
        log.warning("settings: %s", note)


def on_signals(told: Callable[[], object]) -> None:
    """Call this for each SIGINT and SIGTERM, on the running loop."""
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, told)


def leave_signals() -> None:
    """Let the next signal end the process."""
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)


def leave_threads(status: int) -> None:
    """End the process if a handler's thread goes on: Python would wait for it."""
    deadline = time.monotonic() + _LAST_SECONDS
    for thread in threading.enumerate():
        if thread is threading.main_thread() or thread.daemon:
            continue
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            log.warning("ended although a thread still runs: %s", thread.name)
            logging.shutdown()
            sys.stdout.flush()
            os._exit(status)
