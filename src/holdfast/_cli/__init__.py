"""The command `holdfast`. Each of its commands is a module with `configure(parser)` and `run(arguments)`.

Only the module of the command that was called is imported: who waits for an answer does not wait for the others.

Exit status: 0 done, 1 refused or failed, 2 called wrongly, 3 one of several databases was not asked.
A `run` that returns a number means that status.
"""

# In the order in which a command walks through them:
#
# load.py        imports the application and finds its databases
# session.py     chooses the databases, connects to one or opens its operations service, translates errors
# databases.py   asks all databases of a command at once
# arguments.py   parses the parts that commands share: actions, numbers, addresses
# parser.py      parses the words of a call, and answers a wrong one in one line
# table.py       prints tables and JSON
# pooler.py      finds out whether a pooler answers, and whether notifications arrive
# server_features.py checks every feature that Holdfast needs from a server
# progress.py    shows how far a command is
# bucket.py      finds the bucket of the archive and the files in it
# typescript.py  writes TypeScript types of a JSON schema
# log_options.py starts the log of a command that runs handlers
# job_story.py   reads and prints the whole story of a job
# story_source.py reads the steps of a handler from its source
# probe.py       serves /live, /ready and /metrics of a worker from a thread
# server.py      runs uvicorn with timeouts against slow clients
# together.py    serves the dashboard beside a worker, with a login that works once
# lines.py       formats the short log of `dev` and `demo`
# reload.py      replaces a process when a Python file changes
#
# demo.py        runs the shop of `_demo` with a worker and the dashboard
# migrate.py     creates or updates the schema
# worker.py      runs jobs until stopped
# dev.py         runs a worker and the dashboard, with reload
# tick.py        runs every runner once
# status.py      tells whether all is well, and the causes if not
# kinds.py       shows kinds, and their payloads as JSON schema or TypeScript
# jobs.py        lists, retries, cancels and deletes jobs
# bulk_actions.py shows, stops and resumes actions on all jobs of a filter
# events.py      lists and controls subscriptions and parked events
# queues.py      lists and controls queues
# limits.py      lists and sets limits that hold in all workers together
# runners.py     lists and controls schedules and runs
# importing.py   makes jobs or events of rows of another table, in batches
# import_outbox.py  imports the rows of another table, or previews that
# archive.py     shows the state of the archive, and ends the keeping of days for it
# archive_export.py exports closed days and months
# archive_files.py  verifies, restores and searches files of the archive
# retention.py   shows and sets how long history is kept
# tokens.py      makes, lists and revokes access tokens
# serve.py       serves the operations API and the dashboard
# mcp.py         serves read-only tools for assistants
# top.py         opens the terminal dashboard
# capacity.py    computes what a deployment can bear
# check.py       prints all settings and checks the databases
# rehearse.py    holds new code against what waits in the databases

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from holdfast._cli.parser import Parser
from holdfast._distribution import needed, require_libpq, version

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

__all__ = ["main", "main_with", "run_process"]

_COMMANDS = {
    "demo": "try Holdfast: a small shop under load, on a temporary PostgreSQL",
    "migrate": "create or update the schema",
    "worker": "run jobs until stopped",
    "dev": "run a worker and the dashboard, and restart them when a file changes",
    "tick": "run every runner once, and end",
    "status": "tell whether all is well, and if not, what is wrong and what helps",
    "kinds": "show the kinds of an application, and their payloads as JSON schema or TypeScript",
    "jobs": "look at jobs, retry, cancel or delete them",
    "bulk-actions": "look at actions on all jobs of a filter; stop or resume one",
    "events": "look at subscriptions; pause, replay, skip, rebase or delete one; release parked events",
    "queues": "look at queues; pause, resume or set one, or cancel what waits in it",
    "limits": "look at limits on what runs at once in all workers, or set one",
    "runners": "look at schedules and runs; pause, resume or trigger one",
    "import-outbox": "make jobs or events of the rows of another table, once each; a preview by default",
    "archive": "look at the archive; export, verify, restore or search its files",
    "retention": "look at how many days history is kept, or set it",
    "tokens": "make, list and revoke access tokens of the operations API",
    "serve": "serve the operations API and the dashboard",
    "mcp": "answer assistants over the Model Context Protocol, read-only",
    "top": "watch and act in the terminal",
    "capacity": "compute what a deployment can bear, and what gives out first",
    "check": "print every setting and its source, and check the databases",
    "rehearse": "hold new code against what waits in the database, before a deployment",
}
# They need processes and signals of POSIX.
_OF_POSIX = ("demo", "dev", "worker", "tick", "archive")
_OF_AN_APPLICATION = ("worker", "dev", "tick", "kinds", "import-outbox", "serve", "check", "rehearse")
# The exit status of a shell for a program that SIGINT ended.
_INTERRUPTED = 130


def run_process() -> int:
    """Run the command of this process, and return its exit status."""
    status = main()
    if "pyarrow" in sys.modules:
        # The threads that read the archive outlive the command, and one that meets the end of the interpreter aborts.
        from holdfast._engine.process import end

        end(status)
    return status


def main(argv: Sequence[str] | None = None) -> int:
    if "_ARGCOMPLETE" in os.environ:
        # Set by the shell that asks for completions: argcomplete prints them and ends the process.
        with needed("completion", "cli"):
            import_module("argcomplete").autocomplete(_parser(os.environ["COMP_LINE"].split()))
    words = sys.argv[1:] if argv is None else argv
    called = next((word for word in words if word in _COMMANDS), None)
    if called in _OF_POSIX and not hasattr(os, "fork"):
        print(
            f"holdfast {called}: it does not run on this system. Run it on Linux or macOS, or on Windows in WSL or a "
            "container. Applications enqueue from here, and the other commands look at jobs and act on them",
            file=sys.stderr,
        )
        return 1
    arguments = _parser([called]).parse(words)
    try:
        status = arguments.run(arguments) or 0
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` closed the pipe; Python would print an error at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception as error:  # noqa: BLE001 - what is not ours is raised again
        return _fail(arguments, error)
    return int(status)


def main_with(app: str, argv: Sequence[str]) -> int:
    """Run a command with the application inserted, for frameworks whose own command already has it."""
    command = argv[0] if argv else None
    if list(argv[:2]) == ["archive", "export"] and "--app" not in argv:
        return main([*argv, "--app", app])
    return main([*argv[:1], app, *argv[1:]] if command in _OF_AN_APPLICATION else argv)


def _parser(called: Collection[str | None] = _COMMANDS) -> Parser:
    """Return the tree of commands. Only the called commands are loaded with their options."""
    parser = Parser(prog="holdfast", description="Jobs and events that commit with your data.")
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    for name, help_ in _COMMANDS.items():
        own = commands.add_parser(name, help=help_)
        if name in called:
            require_libpq()
            command = import_module(f"holdfast._cli.{name.replace('-', '_')}")
            own.description = command.__doc__
            own.set_defaults(run=command.run)
            command.configure(own)
    return parser


class _Version(argparse.Action):
    """Prints the version, which takes a third of the time of `holdfast --help` to look up."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"holdfast {version()}")
        parser.exit()


def _fail(arguments: argparse.Namespace, error: Exception) -> int:
    """Print an error of ours and return the exit status; raise any other."""
    # Only here, because `holdfast --help` needs nothing of it.
    from holdfast._cli.session import CommandError
    from holdfast._model.errors import HoldfastError
    from holdfast._model.settings import SettingsError

    status, message = 1, str(error)
    if isinstance(error, CommandError):
        status = error.status
    elif isinstance(error, SettingsError) and len(error.problems) == 1:
        message = f"the settings are refused: {error.problems[0]}"
    elif not isinstance(error, HoldfastError):
        raise error
    print(f"holdfast {arguments.command}: {message}", file=sys.stderr)
    return status
