"""A kind whose payload has changed: some replicas have the code of the older version, as in a rolling deploy."""

from __future__ import annotations

import os

from holdfast import Job  # noqa: TC001 - read when the handler is registered
from labs.chaos.application import RETRY, Signed, State, app

QUEUE = "version"
VARIABLE = "CHAOS_PAYLOADS"
"""Of a replica. `older`: its code does not understand what producers send nowadays."""
OLDER = "older"


@app.job("versioned", queue=QUEUE, retry=RETRY, version=2)
async def newer(job: Job[State], text: str) -> Signed:  # noqa: ARG001 - that it can be read is all that matters
    """Take what producers send nowadays."""
    job.state.book.begun(job)
    return job.state.signed(job)


async def older(job: Job[State], number: int) -> Signed:  # noqa: ARG001 - as above
    """Take what producers sent once."""
    job.state.book.begun(job)
    return job.state.signed(job)


def adopt_named() -> None:
    """Let this process have the code that its environment names."""
    if os.environ.get(VARIABLE) == OLDER:
        del app._kinds[newer.name]
        app.job(newer.name, queue=QUEUE, retry=RETRY)(older)
