"""The command `holdfast`. Each of its commands is a module with HELP, `configure(parser)` and `run(arguments)`.

Exit status: 0 done, 1 refused or failed, 2 called wrongly.
"""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

from holdfast.cli import migrate
from holdfast.cli.stop import Stop
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    try:
        arguments.run(arguments)
    except Stop as stop:
        return _said(arguments, stop, stop.status)
    except HoldfastError as error:
        return _said(arguments, error, 1)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="holdfast", description="Jobs and events that commit with your data.")
    parser.add_argument("--version", action="version", version=f"holdfast {version('holdfast')}")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    for name, command in {"migrate": migrate}.items():
        own = commands.add_parser(name, help=command.HELP, description=command.__doc__)
        own.set_defaults(run=command.run)
        command.configure(own)
    return parser


def _said(arguments: argparse.Namespace, error: Exception, status: int) -> int:
    print(f"holdfast {arguments.command}: {error}", file=sys.stderr)
    return status
