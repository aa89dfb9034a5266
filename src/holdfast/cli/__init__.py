"""The command `holdfast`. Each of its commands is a module with HELP, `configure(parser)` and `run(arguments)`.

Exit status: 0 done, 1 refused or failed, 2 called wrongly. A `run` that returns a number means that status.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

from holdfast.cli import check, completion, events, jobs, migrate, queues, runners, serve, tick, tokens, top, worker
from holdfast.cli.stop import Stop
from holdfast.errors import HoldfastError
from holdfast.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main", "main_with"]

_COMMANDS = {
    "migrate": migrate,
    "worker": worker,
    "tick": tick,
    "jobs": jobs,
    "events": events,
    "queues": queues,
    "runners": runners,
    "tokens": tokens,
    "serve": serve,
    "top": top,
    "check": check,
    "completion": completion,
}
_OF_AN_APPLICATION = ("worker", "tick", "serve", "check")
# What a shell answers for a program that SIGINT ended.
_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    try:
        status = arguments.run(arguments) or 0
        sys.stdout.flush()
    except Stop as stop:
        return _said(arguments, str(stop), stop.status)
    except SettingsError as error:
        return _said(arguments, _settings(error), 1)
    except HoldfastError as error:
        return _said(arguments, str(error), 1)
    except BrokenPipeError:  # `| head` has seen enough; Python would complain of it at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return _INTERRUPTED
    else:
        return int(status)


def main_with(app: str, argv: Sequence[str]) -> int:
    """Do as `main` does where the application is known, as a web framework's own command knows it, and not written."""
    command = argv[0] if argv else None
    return main([*argv[:1], app, *argv[1:]] if command in _OF_AN_APPLICATION else argv)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="holdfast", description="Jobs and events that commit with your data.")
    parser.add_argument("--version", action="version", version=f"holdfast {version('holdfast')}")
    parser.set_defaults(tree=parser)
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    for name, command in _COMMANDS.items():
        own = commands.add_parser(name, help=command.HELP, description=command.__doc__)
        own.set_defaults(run=command.run)
        command.configure(own)
    return parser


def _settings(error: SettingsError) -> str:
    """Say one problem in one line, and several below one another."""
    return f"the settings are refused: {error.problems[0]}" if len(error.problems) == 1 else str(error)


def _said(arguments: argparse.Namespace, message: str, status: int) -> int:
    print(f"holdfast {arguments.command}: {message}", file=sys.stderr)
    return status
