"""The web application: `uvicorn --factory invoicing.web:create`."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.middleware.sessions import SessionMiddleware

from holdfast.contrib.fastapi import lifespan
from holdfast.ops import operations

from . import classes, customers, documents, internal, invoices, users
from .config import Config
from .jobs import app
from .services import open_services

# A day of work.
SESSION_SECONDS = 12 * 60 * 60


def create() -> FastAPI:
    config = Config.read(os.environ)
    events = operations(app, url=config.database_url, authenticate=users.operations_person)

    @asynccontextmanager
    async def run(web: FastAPI) -> AsyncGenerator[dict[str, Any], None]:
        # Jobs run here too if HOLDFAST_WORKER_ENABLED is true, which it is not by default.
        async with open_services() as services, events.router.lifespan_context(events), lifespan(app)(web) as state:
            yield {"services": services, **state}

    web = FastAPI(title="Invoicing", lifespan=run)
    web.add_middleware(
        SessionMiddleware,
        secret_key=config.session_secret,
        max_age=SESSION_SECONDS,
        https_only=config.secure_cookies,
    )
    web.exception_handler(RequestValidationError)(_invalid)
    for module in (users, customers, classes, documents, invoices, internal):
        web.include_router(module.router)
    web.mount(users.OPERATIONS, events)
    return web


async def _invalid(_request: Request, error: RequestValidationError) -> JSONResponse:
    """Answer a wrong request with 400: 422 is the answer about a PDF that cannot be rendered."""
    wrong = [{"where": ".".join(map(str, each["loc"])), "message": each["msg"]} for each in error.errors()]
    return JSONResponse({"error": "INVALID_REQUEST", "details": wrong}, status_code=400)
