"""Runs a page: each of its blocks in order, in a folder, a database and a clean environment of the page's own.

| block | is |
|---|---|
| `python title="shop.py"`, and other titles with a dot | written to that file |
| `python` | run like a cell of a notebook; a block `text title="Output"` after it is compared with what it printed |
| `console` | run line by line in a terminal; output shown below a command is compared, `…` stands for any text |
| `console title="A second terminal"` | run in another terminal, where the last command goes on until the page ends |
| `sh` | run line by line; every command must succeed |
| `sql` | run in the database |
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import psycopg

from tests.docs.block import Block, blocks
from tests.docs.terminal import Terminal, commands, matches
from tools.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Ports that pages name. Each stands for a free one, so that pages can be run beside others.
PORTS = ("8000", "8080", "4222")
_INTERRUPT = "^C"
PRELUDES = Path(__file__).parent / "preludes"
_NOTEBOOK = Path(__file__).with_name("notebook.py")


class Ran(NamedTuple):
    commands: int
    seconds: float


class Run:
    """A page under way."""

    def __init__(self, folder: Path, environment: Mapping[str, str], database: str) -> None:
        self._folder = folder
        self._environment = environment
        self._database = database
        self.ports = {port: str(free_port()) for port in PORTS}
        """The free port that stands for each port that pages name."""
        self._terminals: dict[str, Terminal] = {}
        self._notebook: subprocess.Popen[str] | None = None
        self._ends = ExitStack()
        self._printed = ""
        self.commands = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def run(self, asked: Iterable[Block]) -> Ran:
        began = time.monotonic()
        for block in asked:
            self._run(block)
        return Ran(self.commands, time.monotonic() - began)

    def _run(self, block: Block) -> None:
        if "." in block.title:
            file = self._folder / block.title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self._with_ports(block.text))
        elif block.language == "python":
            self.cell(block.text, block.place)
        elif block.language == "console":
            self._converse(block)
        elif block.language == "sh":
            self.script(block)
        elif block.language == "sql":
            with psycopg.connect(self._database, autocommit=True) as conn:
                conn.execute(block.text)
        elif block.title == "Output":
            assert matches(block.text.strip(), self._shown(self._printed)), f"{block.place}: printed\n{self._printed}"

    def cell(self, code: str, place: str) -> None:
        """Run Python as in a notebook."""
        if self._notebook is None:
            self._notebook = subprocess.Popen(  # noqa: S603 - our own pages
                [self._environment["PYTHON"], str(_NOTEBOOK)],
                cwd=self._folder,
                env=dict(self._environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            self._ends.enter_context(self._notebook)
            self._ends.callback(self._notebook.kill)
        assert self._notebook.stdin is not None
        assert self._notebook.stdout is not None
        self._notebook.stdin.write(json.dumps({"code": self._with_ports(code), "place": place}) + "\n")
        self._notebook.stdin.flush()
        answer = json.loads(self._notebook.stdout.readline() or '{"printed": "", "error": "the process ended"}')
        assert answer["error"] is None, f"{place}\n{answer['printed']}{answer['error']}"
        self._printed = answer["printed"]

    def _converse(self, block: Block) -> None:
        terminal = self._terminal(block.title)
        asked = list(commands(block.text))
        assert asked, f"{block.place}: no line begins with `$ `"
        for number, (line, shown) in enumerate(asked, 1):
            self.commands += 1
            before, stopped, after = shown.partition(_INTERRUPT)
            if block.title and number == len(asked):
                assert shown, f"{block.place}: a command that goes on needs a line by which a reader sees that it does"
                terminal.start(self._with_ports(line))
                terminal.wait_for(self._with_ports(shown))
                continue
            terminal.start(self._with_ports(line))
            if stopped:
                terminal.wait_for(self._with_ports(before.strip()))
                terminal.interrupt()
            status, printed = terminal.finish()
            printed = self._shown(printed)
            if stopped:
                assert not after.strip() or matches(f"…\n{after.strip()}", f"\n{printed}"), f"{block.place}\n{printed}"
            elif shown:
                assert matches(shown, printed), f"{block.place}: $ {line}\n{printed}"
            else:
                assert status == 0, f"{block.place}: $ {line}\nexit status {status}\n{printed}"

    def script(self, block: Block) -> None:
        """Run commands of which each must succeed."""
        terminal = self._terminal("")
        # A block with a document for a command's input is one command.
        lines = [block.text] if "<<" in block.text else re.split(r"(?<!\\)\n", block.text.strip())
        for line in lines:
            if not line.strip() or line.startswith("#"):
                continue
            self.commands += 1
            status, printed = terminal.run(self._with_ports(line))
            assert status == 0, f"{block.place}: {line}\nexit status {status}\n{printed}"

    def wait_for(self, shown: str, title: str = "A second terminal") -> None:
        """Wait until the command that goes on in a terminal has printed this."""
        self._terminals[title].wait_for(shown)

    def printed(self, title: str) -> str:
        """Return what the command that goes on in a terminal has printed so far."""
        return self._terminals[title].printed

    def interrupt(self, title: str) -> tuple[int, str]:
        """Press Ctrl-C in a terminal, and return the status of the command and what it printed."""
        self._terminals[title].interrupt()
        return self._terminals[title].finish()

    def _terminal(self, title: str) -> Terminal:
        if title not in self._terminals:
            self._terminals[title] = self._ends.enter_context(Terminal(self._folder, self._environment))
        return self._terminals[title]

    def _with_ports(self, text: str) -> str:
        for port, free in self.ports.items():
            text = re.sub(rf"\b{port}\b", free, text)
        return text

    def _shown(self, text: str) -> str:
        for port, free in self.ports.items():
            text = text.replace(free, port)
        return text


def run_page(page: str, run: Run, *, left_out: Iterable[Block] = ()) -> Ran:
    """Run the preludes of a page, if it has any, and then its blocks."""
    cell, script = (PRELUDES / f"{Path(page).stem}{suffix}" for suffix in (".cell", ".sh"))
    if cell.exists():
        run.cell(cell.read_text("utf-8"), str(cell))
    if script.exists():
        run.script(Block(str(script), 1, "sh", "", script.read_text("utf-8")))
    return run.run([block for block in blocks(page) if block not in set(left_out)])
