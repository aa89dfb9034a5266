"""The database role that each verb needs, named in the error where the user of a connection lacks it."""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast._drivers import state_of
from holdfast._model.errors import RoleMissing

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_PRODUCER = "holdfast_producer"
_WORKER = "holdfast_worker"
_VIEWER = "holdfast_viewer"
_OPERATOR = "holdfast_operator"

ROLES = {
    "enqueue": _PRODUCER,
    "enqueue_many": _PRODUCER,
    "enqueue_group": _PRODUCER,
    "publish": _PRODUCER,
    "publish_many": _PRODUCER,
    "send": _PRODUCER,
    "get_job": _VIEWER,
    "get_chain": _VIEWER,
    "list_jobs": _VIEWER,
    "list_chains": _VIEWER,
    "list_schedules": _VIEWER,
    "list_ticks": _VIEWER,
    "cancel": _WORKER,
    "retry": _WORKER,
    "resume_order_key": _WORKER,
    "add_schedule": _WORKER,
    "pause_schedule": _WORKER,
    "resume_schedule": _WORKER,
    "trigger_schedule": _WORKER,
    "edit_schedule": _WORKER,
    "remove_schedule": _WORKER,
    "delete_chains": _WORKER,
    "complete_chain": _WORKER,
    "complete_many": _WORKER,
    "wait": _WORKER,
    "reschedule": _OPERATOR,
    "pause_queue": _OPERATOR,
    "resume_queue": _OPERATOR,
}
"""The least role of each verb. `holdfast_operator` has all of these rights."""

_INSUFFICIENT_PRIVILEGE = "42501"


def names_roles(owner: str) -> Callable[[type[T]], type[T]]:
    """Decorate a client so that a verb without the rights for it raises RoleMissing. `owner`: as users write it."""

    def decorate(cls: type[T]) -> type[T]:
        for verb, role in ROLES.items():
            setattr(cls, verb, _naming(f"{owner}.{verb}", role, getattr(cls, verb)))
        return cls

    return decorate


def _naming(name: str, role: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    async def call_async(*args: Any, **kwargs: Any) -> Any:
        try:
            return await method(*args, **kwargs)
        except Exception as exc:
            _translate(exc, name, role)
            raise

    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except Exception as exc:
            _translate(exc, name, role)
            raise

    return call_async if inspect.iscoroutinefunction(method) else call


def _translate(exc: Exception, name: str, role: str) -> None:
    if state_of(exc) == _INSUFFICIENT_PRIVILEGE:
        raise RoleMissing(name, role) from exc
