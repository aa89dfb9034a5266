from __future__ import annotations

from typing import TYPE_CHECKING

from asgiref.sync import sync_to_async
from django.db import connection

from tests.contrib.book.application import app

if TYPE_CHECKING:
    from holdfast import Job


@app.job("book.print", queue="press")
def print_book(job: Job[None]) -> int:
    return backend()


@app.job("book.ship")
async def ship_book(job: Job[None]) -> int:
    return await sync_to_async(backend)()


def backend() -> int:
    """Return the process on the server that answers Django in this thread."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])
