"""Chains, and the graphs they make."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - pydantic reads the annotations
from typing import Any, Literal

from holdfast.ops.answer.job import Looked  # noqa: TC001 - pydantic reads the annotations
from holdfast.ops.answer.part import Answer, Id, Status


class ChainLine(Answer):
    """A chain by its first and last job."""

    id: Id
    kind: str
    last_id: Id
    last_kind: str
    status: Status
    created_at: datetime
    finished_at: datetime | None


class ChainPage(Answer):
    chains: list[ChainLine]
    next: Id | None
    looked: Looked


class ChainNode(Answer):
    """A job of a chain's graph."""

    id: Id
    chain_id: Id
    kind: str
    queue: str
    status: Status
    attempt: int
    created_at: datetime
    finished_at: datetime | None
    error_code: str | None
    progress: float | None


class ChainEdge(Answer):
    """`next`: the one continues as the other. `replay`: the other runs the one again. `blocks`: it must end before."""

    source: Id
    target: Id
    kind: Literal["next", "replay", "blocks"]


class ChainGraph(Answer):
    """A chain with the chains it came after and those that come after it, at most 200 jobs."""

    id: Id
    status: Status
    result: Any
    nodes: list[ChainNode]
    edges: list[ChainEdge]
    complete: bool
    """False: there are more jobs than are shown."""
