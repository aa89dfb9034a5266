"""Tasks of the tests' Django site, as Django 6 or its backport declares them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.contrib.django_names import task

if TYPE_CHECKING:
    from tests.contrib.django_names import TaskContext


class DeclinedError(Exception):
    pass


@task
def add(a: int, b: int = 1) -> int:
    return a + b


@task(queue_name="mail", priority=10)
async def greet(name: str) -> dict[str, str]:
    return {"hello": name}


@task(takes_context=True)
def noted(context: TaskContext[..., Any], note: str) -> list[Any]:
    return [context.attempt, context.task_result.id, note]


@task(backend="once")
def decline() -> None:
    raise DeclinedError("no money")


@task(takes_context=True)
def fail_twice(context: TaskContext[..., Any]) -> int:
    if context.attempt < 3:
        raise ValueError(context.attempt)
    return context.attempt
