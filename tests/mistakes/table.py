"""The table of mistakes: every area, in the order of the page."""

from __future__ import annotations

from tests.mistakes.applications import APPLICATIONS, WORKERS
from tests.mistakes.archiving import ARCHIVING
from tests.mistakes.commands import DATABASES, STARTING
from tests.mistakes.connections import CONNECTIONS, ENQUEUEING, WAITING
from tests.mistakes.events import SUBSCRIPTIONS, TOPICS
from tests.mistakes.handlers import HANDLERS, RECURRING
from tests.mistakes.jobs import JOBS, OPTIONS, VALUES
from tests.mistakes.operating import OPERATING, SERVING

IN_PYTHON = (
    HANDLERS,
    RECURRING,
    JOBS,
    OPTIONS,
    VALUES,
    ENQUEUEING,
    CONNECTIONS,
    WAITING,
    TOPICS,
    SUBSCRIPTIONS,
    APPLICATIONS,
    WORKERS,
)
IN_COMMANDS = (STARTING, DATABASES, OPERATING, ARCHIVING, SERVING)
