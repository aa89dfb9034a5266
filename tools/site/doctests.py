"""An extension of griffe: the examples in docstrings, which are doctests, are shown as code."""

from __future__ import annotations

from typing import Any

import griffe


class Doctests(griffe.Extension):
    """Fence each example of a docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """Return the text with a code block around each doctest: its prompts, and the output up to an empty line."""
    lines, inside = [], False
    for line in text.splitlines():
        if not inside and line.lstrip().startswith(">>>"):
            lines += ["", "```pycon"]
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line)
    return "\n".join([*lines, "```"] if inside else lines)
