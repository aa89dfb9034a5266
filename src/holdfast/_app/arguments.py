"""Checks of the arguments that users pass to an application, where Python's own error would not help them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, get_origin

from holdfast._engine.attempt import Attempt
from holdfast._model.call import in_event_loop, type_name
from holdfast._model.errors import HoldfastError
from holdfast._model.event import NewEvent, Topic
from holdfast._model.handle import Handle
from holdfast._model.job import Job, run_of
from holdfast._model.new_job import NewJob, check_new_job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast._model.handle import HasResult

R = TypeVar("R")


def check_registered_name(function: str, name: object) -> None:
    """Raise a TypeError that shows the right spelling unless the name is a text."""
    if callable(name) and not isinstance(name, type):
        own = getattr(name, "__name__", "name")
        raise TypeError(f'@{function} needs a name in parentheses: write @{function}("{own}")')
    if not isinstance(name, str):
        given = type(name).__name__
        raise TypeError(f'{function}: the name comes first, as a text, not a {given}: write {function}("name", …)')


def check_model(function: str, name: str, model: object) -> None:
    """Raise a TypeError unless the model is a type, such as a pydantic model or a dataclass."""
    if not isinstance(model, type) and get_origin(model) is None:
        given = f"{model!r:.60}" if isinstance(model, str) else f"a {type(model).__name__}"
        raise TypeError(
            f"{function}: {name}: the model is a type: give a pydantic model, a dataclass or a TypedDict, not {given}"
        )


def topic_names(function: str, topics: Sequence[Topic[Any]]) -> tuple[str, ...]:
    """Return the names of these topics, each once; raise a TypeError for anything else."""
    for topic in topics:
        if not isinstance(topic, Topic):
            raise TypeError(
                f"{function}: {topic!r:.60} is not a topic: give what app.event(name, Model) returned, not a name"
            )
    return tuple(dict.fromkeys(topic.name for topic in topics))


def check_lifespan(lifespan: object) -> None:
    """Raise a TypeError for a generator function, which is not a context manager yet."""
    if inspect.isasyncgenfunction(lifespan) or inspect.isgeneratorfunction(lifespan):
        raise TypeError(f"lifespan: write @asynccontextmanager above {lifespan.__name__}, from contextlib")


def check_instance(name: str, value: object, methods: tuple[str, ...], example: str) -> None:
    """Raise a TypeError that shows the right spelling unless the value is None or has these methods."""
    if value is None:
        return
    if isinstance(value, type) or not all(callable(getattr(value, method, None)) for method in methods):
        given = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
        raise TypeError(f"{name}: write {name}={example}, not {given}")


def listed_jobs(function: str, jobs: Iterable[NewJob[R]]) -> list[NewJob[R]]:
    """Return the jobs as a list; raise a TypeError that shows the right spelling for anything else."""
    if isinstance(jobs, NewJob):
        raise TypeError(f"{function}: one job is given where a list is expected: write [job], or call app.enqueue")
    if not isinstance(jobs, Iterable):
        raise TypeError(f"{function}: expected a list of jobs after the connection, got {type(jobs).__name__}")
    found = list(jobs)
    for job in found:
        check_new_job(job, function)
    return found


def running_attempts(function: str, ends: Mapping[Job[Any], object]) -> dict[Job[Any], Attempt]:
    """Return the attempts of jobs that one worker runs for one database; raise an error for anything else."""
    example = f"{function}: expected a mapping such as {{item.job: result}}"
    if not isinstance(ends, Mapping):
        raise TypeError(f"{example}, got {type(ends).__name__}")
    found: dict[Job[Any], Attempt] = {}
    for job in ends:
        if not isinstance(job, Job):
            raise TypeError(f"{example}, got {type_name(job)} in it")
        run = run_of(job)
        if not isinstance(run, Attempt):
            raise HoldfastError(f"{function}: job {job.id} runs in a process of its own: write job.complete")
        found[job] = run
    if len({id(attempt.completer) for attempt in found.values()}) > 1:
        raise HoldfastError(f"{function}: the jobs are of several databases")
    return found


def listed_events(function: str, events: Iterable[NewEvent]) -> list[NewEvent]:
    """Return the events as a list; raise a TypeError that shows the right spelling for anything else."""
    if isinstance(events, NewEvent):
        raise TypeError(f"{function}: one event is given where a list is expected: write [event], or call app.publish")
    if not isinstance(events, Iterable):
        raise TypeError(f"{function}: expected a list of events after the connection, got {type(events).__name__}")
    found = list(events)
    for event in found:
        check_event(event, function)
    return found


def check_event(event: object, function: str) -> None:
    if isinstance(event, NewEvent):
        return
    if isinstance(event, NewJob):
        problem = "this is a job: use app.enqueue(conn, job)"
    elif isinstance(event, Topic):
        problem = f"{event.name} is a topic, not an event: call its .new(payload) and give what it returns"
    else:
        problem = f"expected an event, got {type_name(event)}: make one with its topic's .new(payload)"
    raise TypeError(f"{function}: {problem}")


def given_id(chain: HasResult[Any] | int, parameter: str = "chain") -> int:
    """Return the id of a chain that is given by its handle or id; raise a TypeError for anything else."""
    if type(chain) is int:
        return chain
    found = getattr(chain, "chain_id", None)
    if type(found) is int:
        return found
    if isinstance(chain, NewJob):
        raise TypeError(f"{chain.kind}: this job has no id yet: enqueue it, and give the handle that enqueue returned")
    raise TypeError(f"{parameter}: expected a handle or an id, which is a whole number, got {type_name(chain)}")


def given_job_id(job: Handle[Any] | int) -> int:
    """Return the id of a job that is given by its handle or id; raise a TypeError for anything else."""
    return job.id if isinstance(job, Handle) else given_id(job, "job")


def check_no_event_loop(verb: str) -> None:
    """Raise HoldfastError in an event loop, which the call would block."""
    if in_event_loop():
        raise HoldfastError(
            f"app.sync.{verb} would block the event loop of this thread: write await app.{verb}(…), or call it in a "
            "thread, as asyncio.to_thread does"
        )
