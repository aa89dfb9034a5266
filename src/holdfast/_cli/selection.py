"""Jobs selected by a filter: listed first, acted on with --yes, up to a limit per call."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from holdfast._cli import operator, table
from holdfast._cli.session import CommandError
from holdfast._model.retry import tries
from holdfast._store.inspect import STATUSES
from holdfast._store.search import MOST_ACTED_ON

if TYPE_CHECKING:
    from holdfast._ops.requests import JobFilter
    from holdfast._ops.responses.job import JobActionResult

_COLUMNS = ("id", "status", "kind", "queue", "attempt", "created", "error")
_OPTIONS = {
    "kind": "KIND",
    "queue": "QUEUE",
    "order_key": "KEY",
    "unique_key": "KEY",
    "error_code": "CODE",
    "text": "TEXT",
}
_FIELDS = ("status", *_OPTIONS)
_DONE = {"retry": "retried", "cancel": "cancelled, or asked to stop", "delete": "deleted"}
_MOST = 100


def configure(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("instead of ids", "what the jobs have in common; without --yes they are shown")
    group.add_argument("--status", choices=STATUSES)
    for name, metavar in _OPTIONS.items():
        group.add_argument(f"--{name.replace('_', '-')}", metavar=metavar)
    group.add_argument(
        "--most", type=_most, default=_MOST, metavar="N", help=f"at once; at most {MOST_ACTED_ON} (default: {_MOST})"
    )
    parser.add_argument("--yes", action="store_true", help="yes, do it")


def given(arguments: argparse.Namespace) -> JobFilter | None:
    """Return the filter, or None if none was given."""
    said = {name: value for name in _FIELDS if (value := getattr(arguments, name)) is not None}
    if not said:
        return None
    from holdfast._ops.requests import JobFilter

    try:
        return JobFilter.model_validate(said)
    except ValidationError as error:
        first = error.errors()[0]
        raise CommandError(f"--{str(first['loc'][0]).replace('_', '-')}: {first['msg']}", status=2) from error


async def act(arguments: argparse.Namespace, which: JobFilter) -> int:
    from holdfast._ops.requests import JobAction

    asked: dict[str, Any] = {"action": arguments.action, "filter": which, "most": arguments.most}
    action = JobAction(**asked, preview=not arguments.yes)
    async with operator.opened(arguments) as opened:
        result = await opened.act_on_jobs(action, operator.person())
    if arguments.json:
        table.print_json(result.model_dump(mode="json"))
    else:
        _print(arguments.action, result, arguments.most)
    return 1 if result.refused else 0


def _print(action: str, result: JobActionResult, most: int) -> None:
    done = _DONE[action]
    if not result.matched:
        print("No such jobs.")
    elif result.preview:
        table.print_table(
            _COLUMNS,
            [
                (
                    job.id,
                    job.status,
                    job.kind,
                    job.queue,
                    tries(job.attempt, job.max_attempts),
                    job.created_at,
                    job.error_code,
                )
                for job in result.sample
            ],
        )
        print(f"{table.counted(result.matched, 'job')} would be {done}. Give --yes to do it.")
    else:
        print(f"{result.done} of {table.counted(result.matched, 'job')} {done}.")
        for refused in result.refused:
            print(f"{refused.id}: {refused.why}")
    if result.matched == most and result.capped:
        print("There may be more: repeat it, or raise --most.")
    elif not result.looked.complete:
        looked = result.looked
        newest = table.counted(looked.jobs, "job")
        print(f"Looked at the newest {newest} alone, back to {table.text(looked.back_to)}: say more of them.")


def _most(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_ACTED_ON:
        raise argparse.ArgumentTypeError(f"{text!r}: from 1 to {MOST_ACTED_ON}")
    return int(text)
