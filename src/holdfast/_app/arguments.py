"""Checks of the arguments that users pass to an application, where Python's own error would not help them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_origin

from holdfast._model.event import Topic

if TYPE_CHECKING:
    from collections.abc import Sequence


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
