"""The parser of the command line. A wrong call is answered by one line: what is wrong, and what to write."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_CHOICE = re.compile(r"argument (.+): invalid choice: (.+) \(choose from (.+?)\)")
_REQUIRED = re.compile(r"the following arguments are required: (.+)")
_ALIKE = 0.75
_ONE_OF = re.compile(r"one of the arguments (.+) is required")
_EXCLUDED = re.compile(r"argument ([^:]+): not allowed with argument (.+)")
_ARGUMENT = re.compile(r"argument ([^:]+): (.+)", re.DOTALL)
_EXAMPLES = {"APP": ", e.g. shop.jobs:app"}
_THE_APP = "the application is named after the command: write holdfast worker shop.jobs:app"
# The options of other libraries' workers.
_ELSEWHERE = {
    "-A": _THE_APP,
    "--app": _THE_APP,
    "-c": "write --concurrency 4",
    "-Q": "write --queues mail=4,default=10",
    "-l": "write --log-level info",
    "-B": "every worker runs the schedules, and each slot is run once",
    "--beat": "every worker runs the schedules, and each slot is run once",
    "-P": "each kind has its executor: write @app.job(…, executor=…)",
    "--pool": "each kind has its executor: write @app.job(…, executor=…)",
}


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.set_defaults(called=self)

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse the words; an unknown option is an error of the command that got it."""
        if words and words[0] in _ELSEWHERE:
            self.refuse(words)
        found, unknown = self.parse_known_args(words)
        if unknown:
            found.called.refuse(unknown)
        return found

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """End with an error that names the first unknown word, and a known one like it."""
        word = unknown[0].partition("=")[0]
        options = [option for action in self._actions for option in action.option_strings]
        what = "option" if word.startswith("-") else "argument"
        near = _suggestion(word, options) if what == "option" else ""
        self.error(f"there is no {what} {word}: {near or _ELSEWHERE.get(word) or self._see_help()}")

    def error(self, message: str) -> NoReturn:
        """Print the error in plain words and exit with status 2."""
        self.exit(2, f"{self.prog}: {self._explained(message)}\n")

    def _explained(self, message: str) -> str:
        if found := _CHOICE.match(message):
            name, given, *_ = (part.strip("'") for part in found.groups())
            choices = re.findall(r"[\w-]+", found[3])
            if name in {"command", "action"}:
                return f"there is no {name} {given}: {self._advice(given, choices)}"
            return f"{name}: expected one of {', '.join(choices)}, got {given}"
        if found := _REQUIRED.match(message):
            return self._missing(found[1])
        if found := _ONE_OF.match(message):
            return f"{' or '.join(found[1].split())} is missing: give one of them"
        if found := _EXCLUDED.match(message):
            return f"{found[1]} and {found[2]} exclude each other: give one of them"
        found = _ARGUMENT.match(message)
        return f"{found[1]}: {found[2]}" if found else message

    def _missing(self, names: str) -> str:
        if names in {"command", "action"}:
            actions = (action.choices for action in self._actions if isinstance(action.choices, dict))
            return f"the {names} is missing: give one of {', '.join(next(actions, ()))}"
        return f"{names} is missing: write {self.prog} {self._shape()}{_EXAMPLES.get(names, '')}"

    def _shape(self) -> str:
        """Return the required words of this command."""
        needed = [action for action in self._actions if action.required]
        needed.sort(key=lambda action: bool(action.option_strings))
        return " ".join(
            f"{action.option_strings[0]} {action.metavar or '|'.join(map(str, action.choices or ()))}"
            if action.option_strings
            else str(action.metavar or action.dest)
            for action in needed
        )

    def _advice(self, word: str, known: Iterable[str]) -> str:
        return _suggestion(word, known) or self._see_help()

    def _see_help(self) -> str:
        return f"see `{self.prog} --help`"


def _suggestion(word: str, known: Iterable[str]) -> str:
    from holdfast._model.call import suggestion  # with asyncio, which no right call needs here

    return suggestion(word, known, likeness=_ALIKE)
