"""A mistake that newcomers make, and the message that answers it. docs/reference/errors.md counts them."""

from __future__ import annotations

import re
from textwrap import dedent
from typing import NamedTuple

PRELUDE = """
from datetime import UTC, datetime, timedelta

import psycopg
from pydantic import BaseModel

from holdfast import *
from holdfast.sinks import KafkaSink, NatsSink, RedisSink, WebhookSink

app = Holdfast("postgresql://…")


class Order(BaseModel):
    id: int


@app.job("mail", queue="mail")
async def mail(job: Job[None], to: str, copies: int = 1) -> str:
    return to


paid = app.event("order.paid", Order)
"""

SHOP = """
from holdfast import Holdfast, Job

app = Holdfast()


@app.job("mail", queue="mail")
async def mail(job: Job[None], to: str) -> str:
    return to
"""


class Mistake(NamedTuple):
    """One row of the table."""

    title: str
    code: str
    """Python that follows `PRELUDE`, or a command in the folder of `shop.py`, which is `SHOP`."""
    message: str
    """The answer; … stands for any text."""

    @property
    def written(self) -> str:
        """The code without the indentation of the table."""
        return dedent(self.code).strip("\n")

    @property
    def answer(self) -> str:
        """The message without the indentation of the table."""
        return dedent(self.message).strip()

    def is_answered_by(self, message: str) -> bool:
        shape = ".*".join(re.escape(part) for part in self.answer.split("…"))
        return re.fullmatch(shape, message, re.DOTALL) is not None


class Area(NamedTuple):
    """A section of the page."""

    title: str
    intro: str
    mistakes: tuple[Mistake, ...]


# What a message of Python itself sounds like when our own code trips over a value of the user's.
_RAW = re.compile(
    r"object has no attribute|unexpected keyword|missing \d+ required|takes \d+ positional|not supported between|"
    r"not iterable|NoneType|not callable|real number|Traceback|File \"|KeyError|'type'|expected str, bytes"
)
# The accepted form, or the next step.
_CURE = re.compile(
    r"\b(write|use|give|call|set|run|start|install|did you mean|such as|expected|must|should|should be|e\.g\.|like|"
    r"choose|one of|from \d|at most|declare|define|await|enqueue it|make one|open|resume|return|percent-encode|"
    r"see|try again|migrate|pass|leave it out|add|begin|there are|it takes|silence|wait longer|name|needs|correct|create)\b",
    re.IGNORECASE,
)
# A message may begin with the parameter that is wrong: `queue: expected …`.
_PLACE = re.compile(r"\w+: [\w.@()-]+: ")
_COMMON = re.compile(r"(an?|and|app|as|at|async|await|class|conn|def|for|from|import|in|is|it|job|new|of|the|to|url)")
HIDDEN = "hush"


def faults(mistake: Mistake, message: str) -> list[str]:
    """Return what a message lacks: what is wrong, where, and what to do; and what it must not have."""
    found = []
    if len(message.split()) < 5:
        found.append("it does not say what is wrong")
    words = set(re.findall(r"\"([^\"]{3,})\"", mistake.written))
    words |= {word for word in re.findall(r"[\w-]{2,}", mistake.written) if not _COMMON.fullmatch(word)}
    if not _PLACE.match(message) and not any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", message) for word in words):
        found.append("it names nothing of what was written: where is it wrong?")
    if not _CURE.search(message):
        found.append("it does not say what to do")
    if raw := _RAW.search(message):
        found.append(f"it is a message of Python's own: {raw[0]}")
    if HIDDEN in message:
        found.append("it shows a secret")
    return found
