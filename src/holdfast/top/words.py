"""What is typed after `/`: words that must be found somewhere in a row, and `column:word` for one column."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Words:
    """A filter; upper and lower case are the same."""

    anywhere: tuple[str, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str) -> Self:
        """Read `mail status:failed`: what is before the first colon names a column."""
        anywhere: list[str] = []
        fields: dict[str, str] = {}
        for given in text.split():
            name, colon, value = given.partition(":")
            if colon and name and value:
                fields[name.lower()] = value
            else:
                anywhere.append(given)
        return cls(tuple(anywhere), fields)

    def __bool__(self) -> bool:
        return bool(self.anywhere or self.fields)

    def __str__(self) -> str:
        return " ".join([*(f"{name}:{value}" for name, value in self.fields.items()), *self.anywhere])

    def match(self, cells: Mapping[str, str]) -> bool:
        """Tell whether a row has them; columns that it has not are not looked for."""
        low = {title.lower(): text.casefold() for title, text in cells.items()}
        return all(value.casefold() in low[name] for name, value in self.fields.items() if name in low) and all(
            any(given.casefold() in text for text in low.values()) for given in self.anywhere
        )
