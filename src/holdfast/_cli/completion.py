"""Print a script that completes this command in a shell.

bash: eval "$(holdfast completion bash)". zsh: eval "$(holdfast completion zsh)", after compinit.
fish: holdfast completion fish | source.
"""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

SHELLS = ("bash", "zsh", "fish")


class Word(NamedTuple):
    """A word that may come next, and its help."""

    text: str
    help: str


class Place(NamedTuple):
    """The words that may follow a path of commands."""

    path: tuple[str, ...]
    commands: list[Word]
    options: list[Word]
    values: dict[str, tuple[str, ...]]
    """Choices by option, empty if any value may follow. Options without a value are not listed."""
    choices: tuple[str, ...]
    """Choices of the positional arguments."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS)


def run(arguments: argparse.Namespace) -> None:
    places = list(walk(arguments.tree))
    write = {"bash": _bash, "zsh": _zsh, "fish": _fish}[arguments.shell]
    print("\n".join(write(places)))


def walk(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[Place]:
    """Yield every place in the tree of commands."""
    commands: list[Word] = []
    options: list[Word] = []
    values: dict[str, tuple[str, ...]] = {}
    choices: list[str] = []
    below: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way to inspect a parser
        said = "" if action.help is None else action.help
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            below |= action.choices
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}  # noqa: SLF001 - as above
            commands += [Word(name, helps.get(name, "")) for name in action.choices]
        elif said == argparse.SUPPRESS:
            continue
        elif action.option_strings:
            options += [Word(name, said) for name in action.option_strings]
            if action.nargs != 0:
                values |= dict.fromkeys(action.option_strings, tuple(map(str, action.choices or ())))
        else:
            choices += map(str, action.choices or ())
    yield Place(path, commands, options, values, tuple(choices))
    for name, own in below.items():
        yield from walk(own, (*path, name))


def _bash(places: list[Place]) -> Iterator[str]:
    yield "# bash completion for holdfast"
    yield "_holdfast() {"
    yield '    local before="${COMP_WORDS[COMP_CWORD-1]}" place="" offers="" word'
    yield from _offers('"${COMP_WORDS[@]:1:COMP_CWORD-1}"', places)
    yield '    COMPREPLY=($(compgen -W "$offers" -- "${COMP_WORDS[COMP_CWORD]}"))'
    yield "}"
    yield "complete -o bashdefault -o default -F _holdfast holdfast"


def _zsh(places: list[Place]) -> Iterator[str]:
    yield "#compdef holdfast"
    yield "_holdfast() {"
    yield '    local before="${words[CURRENT-1]}" place="" offers="" word'
    yield from _offers('"${(@)words[2,CURRENT-1]}"', places)
    yield '    if [[ -n "$offers" ]]; then compadd -- ${=offers}; else _files; fi'
    yield "}"
    yield "compdef _holdfast holdfast"


def _offers(given: str, places: list[Place]) -> Iterator[str]:
    """Yield code that walks the words typed so far and offers the next ones. Valid in bash and zsh."""
    named = {place.path: "".join(f" {word}" for word in place.path) for place in places}
    yield f"    for word in {given}; do"
    yield '        case "$place $word" in'
    for name in filter(None, named.values()):
        yield f"            {shlex.quote(name)}) place={shlex.quote(name)} ;;"
    yield "        esac"
    yield "    done"
    yield '    case "$place:$before" in'
    for place in places:
        name = named[place.path]
        for option, choices in place.values.items():
            yield f"        {shlex.quote(f'{name}:{option}')}) offers={shlex.quote(' '.join(choices))} ;;"
        words = [*place.choices, *(word.text for word in (*place.commands, *place.options))]
        yield f"        {shlex.quote(f'{name}:')}*) offers={shlex.quote(' '.join(words))} ;;"
    yield "    esac"


def _fish(places: list[Place]) -> Iterator[str]:
    yield "# fish completion for holdfast"
    yield "complete -c holdfast -f"
    for place in places:
        siblings = [word.text for word in place.commands]
        here = [f"__fish_seen_subcommand_from {name}" for name in place.path]
        if siblings:
            here.append(f"not __fish_seen_subcommand_from {' '.join(siblings)}")
        when = f"-n {shlex.quote('; and '.join(here))} " if here else ""
        for word in place.commands:
            yield f"complete -c holdfast {when}-a {word.text} -d {shlex.quote(word.help)}"
        if place.choices:
            yield f"complete -c holdfast {when}-a {shlex.quote(' '.join(place.choices))}"
        for word in place.options:
            flag = f"-l {word.text[2:]}" if word.text.startswith("--") else f"-s {word.text[1:]}"
            value = ""
            if word.text in place.values:
                choices = place.values[word.text]
                value = f" -x -a {shlex.quote(' '.join(choices))}" if choices else " -r"
            yield f"complete -c holdfast {when}{flag}{value} -d {shlex.quote(word.help.replace('%%', '%'))}"
