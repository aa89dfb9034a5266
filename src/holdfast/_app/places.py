"""The places in the code where the parts of an application are registered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._model.call import callers_place

if TYPE_CHECKING:
    from holdfast._model.errors import HoldfastError


class Places:
    """Remembers the line of each registration, for the error when a name is registered twice."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, str], str] = {}

    def take(self, what: str, name: str, error: type[HoldfastError], *, taken: bool) -> None:
        """Remember where this name was registered; raise the error, with both places, if it is taken."""
        here = callers_place()
        if not taken:
            self._places[what, name] = here
            return
        first = self._places[what, name]
        if first == here:
            cure = f"registered twice, at {here}: that module is imported under two names, or its code runs again"
        else:
            cure = f"registered at {first}, and again at {here}: give one of them another name"
        raise error(f"{name}: a {what} of this name is {cure}")
