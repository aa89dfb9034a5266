"""Look at queues; pause or resume one, cancel what waits in it, or set what it runs by while workers run."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, TypeAlias

from holdfast._cli import arguments as args
from holdfast._cli import session, table
from holdfast._cli.bulk_actions import wait_for
from holdfast._cli.databases import ask_all
from holdfast._cli.session import CommandError
from holdfast._ops.requests import QueueAction, QueueControl
from holdfast._ops.responses.job import JobActionResult
from holdfast._ops.wording import counted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast._ops.responses.fleet import QueueLine
    from holdfast._ops.service import Service

    Act: TypeAlias = Callable[[Service, argparse.Namespace], Awaitable[None]]

_COLUMNS = (
    "name", "state", "due", "oldest", "pending", "processing", "blocked", "stuck", "workers", "concurrency", "lease s",
    "rate",
)  # fmt: skip
_OWN = "own"
_OPTIONS = {"concurrency": "concurrency", "lease_ms": "lease", "rate": "rate"}
_MESSAGES = {
    "pause": "paused; what runs goes on, and each worker claims nothing more from its next heartbeat on",
    "resume": "goes on",
}
_LONGEST_NAME = 200


def configure(parser: argparse.ArgumentParser) -> None:
    args.configure(parser)
    actions = parser.add_subparsers(dest="action", metavar="action")

    def add(name: str, help_: str, act: Act) -> argparse.ArgumentParser:
        own = args.add_action(actions, name, help_, act, inherits=True)
        own.add_argument("name", type=_name, metavar="NAME")
        return own

    args.add_action(actions, "list", "list them all (the default)", inherits=True)
    own = add("pause", "claim nothing more from it; what runs goes on", _pause)
    own.add_argument("--reason", metavar="TEXT", help="shown wherever the pause is")
    add("resume", "claim from it again", _pause)
    own = add("set", "set what it runs by; `own` leaves each worker's own setting", _set)
    concurrency, rate = args.whole(0, 100_000), args.number(0.001, 1_000_000)
    own.add_argument("--concurrency", type=_or_own(concurrency), metavar="N", help="handlers at once per worker")
    own.add_argument("--lease", type=_or_own(_milliseconds), metavar="SECONDS", help="length of its leases")
    own.add_argument("--rate", type=_or_own(rate), metavar="N", help="jobs per second and worker")
    own = add("cancel-waiting", "cancel what waits in it; without --yes, only say how much that is", _cancel_waiting)
    own.add_argument("--limit", type=args.whole(1, args.LARGEST_ID), metavar="N", help="at most so many (default: all)")
    own.add_argument("--yes", action="store_true", help="yes, cancel them")


def run(arguments: argparse.Namespace) -> int:
    return session.run_async(_run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    act: Act | None = getattr(arguments, "act", None)
    if act is None:
        return await _list(arguments)
    async with session.service(session.chosen(arguments)) as service:
        await act(service, arguments)
    return 0


def _name(text: str) -> str:
    if not text.isprintable() or not 1 <= len(text.encode()) <= _LONGEST_NAME:
        raise argparse.ArgumentTypeError(f"a queue's name has 1 to {_LONGEST_NAME} printable bytes")
    return text


def _or_own(read: Callable[[str], float]) -> Callable[[str], float | None]:
    return lambda text: None if text == _OWN else read(text)


async def _list(arguments: argparse.Namespace) -> int:
    answers = await ask_all(session.listed(arguments), lambda service, _: service.queues())
    queues = [(answer.name, queue) for answer in answers.found for queue in answer.value.items]
    if arguments.json:
        found = [answers.json(answer.name, answer.value.model_dump(mode="json")) for answer in answers.found]
        table.print_json(found if answers.several else found[0])
    elif queues:
        queues.sort(key=lambda one: (one[1].name, one[0]))
        answers.print_table(_COLUMNS, [(name, _line(queue)) for name, queue in queues])
        for name, answer in answers.found:
            print(f"Live jobs{f' of {name}' if name else ''} were counted at {table.text(answer.counted_at)}.")
    else:
        print("No queue has jobs, a control row or a worker.")
    return answers.status()


def _line(queue: QueueLine) -> tuple[object, ...]:
    depth = queue.depth
    state = "paused" if queue.paused else "open" if queue.workers else "unserved"
    oldest = f"{depth.oldest_due_seconds:.0f} s" if depth.due else None
    counts = (depth.due, oldest, depth.pending, depth.processing, depth.blocked, depth.stuck)
    return queue.name, state, *counts, queue.workers, queue.concurrency, _seconds(queue.lease_ms), queue.rate


def _milliseconds(text: str) -> int:
    return round(args.number(1, 86_400)(text) * 1_000)


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1_000


async def _pause(service: Service, arguments: argparse.Namespace) -> None:
    action = QueueAction(action=arguments.action, reason=getattr(arguments, "reason", None))
    await service.act_on_queue(arguments.name, action, session.person())
    table.print_done(arguments, _MESSAGES[arguments.action])


async def _set(service: Service, arguments: argparse.Namespace) -> None:
    given = {name: getattr(arguments, option) for name, option in _OPTIONS.items() if hasattr(arguments, option)}
    if not given:
        raise CommandError(
            f"nothing to set for {arguments.name}: give {', '.join(f'--{option}' for option in _OPTIONS.values())}",
            status=2,
        )
    now = next((queue for queue in (await service.queues()).items if queue.name == arguments.name), None)
    kept = dict.fromkeys(_OPTIONS) if now is None else {name: getattr(now, name) for name in _OPTIONS}
    control = QueueControl.model_validate(kept | given)
    await service.set_queue(arguments.name, control, session.person())
    values = zip(_OPTIONS.values(), (control.concurrency, _seconds(control.lease_ms), control.rate), strict=True)
    message = ", ".join(f"{name} {_OWN if value is None else format(value, 'g')}" for name, value in values)
    table.print_done(arguments, message, **control.model_dump())


async def _cancel_waiting(service: Service, arguments: argparse.Namespace) -> None:
    sure = getattr(arguments, "yes", False)
    action = QueueAction(action="cancel_waiting", preview=not sure, limit=getattr(arguments, "limit", None))
    result = await service.act_on_queue(arguments.name, action, session.person())
    assert isinstance(result, JobActionResult)  # noqa: S101 - the answer to this action
    if result.bulk is not None:
        bulk = await wait_for(service, result.bulk, arguments)
        result = result.model_copy(update={"bulk": bulk, "done": bulk.done, "refused": bulk.refusals})
    if arguments.json:
        table.print_json(result.model_dump(mode="json"))
    elif sure:
        print(f"{arguments.name}: {counted(result.done, 'job')} cancelled.")
    else:
        would = f"{counted(result.matched, 'job')}{' or more' if result.capped else ''} would be cancelled"
        print(f"{arguments.name}: {would}. Give --yes to do it.")
