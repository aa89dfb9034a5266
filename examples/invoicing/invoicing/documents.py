"""The endpoint that waits for the PDF of an invoice. It renders nothing: a worker does."""

import math
from datetime import timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import JSONResponse, Response
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import joinedload
from starlette.requests import ClientDisconnect

from holdfast import ChainFailed, Handle
from holdfast.contrib.fastapi import while_connected

from .api import Body, Id, Shared
from .jobs import app, render_pdf, request_pdf
from .storage import Pdf
from .tables import Invoice
from .users import Office

DEFAULT_MS = 15_000
MOST_MS = 30_000
RETRY_MS = 2_000

router = APIRouter(prefix="/invoices", tags=["invoices"], dependencies=[Office])


class Ready(Body):
    status: Literal["READY"] = "READY"
    invoice_id: int
    download_url: str
    size: int


class Pending(Body):
    status: Literal["PENDING"] = "PENDING"
    invoice_id: int
    retry_after_ms: int = RETRY_MS


class RenderFailed(Body):
    error: Literal["INVOICE_PDF_RENDER_FAILED"] = "INVOICE_PDF_RENDER_FAILED"
    invoice_id: int
    reason: str


@router.get("/{invoice_id}/pdf", responses={202: {"model": Pending}, 422: {"model": RenderFailed}})
async def wait_for_pdf(
    invoice_id: Id, request: Request, services: Shared, wait_ms: Annotated[int, Query(alias="waitMs")] = DEFAULT_MS
) -> Response:
    """Wait until the PDF is ready, for `waitMs` at most.

    All who wait in this process share one connection to the database, and none holds one of the pool.
    """
    async with services.sessions.begin() as session:
        found = await _ensure(session, invoice_id)
    if isinstance(found, Handle):
        try:
            found = await while_connected(request, app.wait(found, timeout=longest_wait(wait_ms)))
        except TimeoutError:
            return _answer(202, Pending(invoice_id=invoice_id))
        except ClientDisconnect:
            return Response(status_code=499)  # which nothing receives
        except ChainFailed as failed:
            if failed.status == "failed":
                return _answer(422, RenderFailed(invoice_id=invoice_id, reason=failed.error_code or "unknown"))
            # It was cancelled or deleted: ask for another one.
            async with services.sessions.begin() as session:
                await request_pdf(session, invoice_id)
            return _answer(202, Pending(invoice_id=invoice_id))
    link = await services.storage.link(found.key)
    return _answer(200, Ready(invoice_id=invoice_id, download_url=link, size=found.size))


def longest_wait(wait_ms: int = DEFAULT_MS) -> timedelta:
    return timedelta(milliseconds=min(max(wait_ms, 1), MOST_MS))


async def _ensure(session: AsyncSession, invoice_id: int) -> Pdf | Handle[Pdf]:
    """Return the PDF, or the job that renders it, which is enqueued unless it was before.

    If that job failed and an operator retries it, the retry belongs to the same chain, and is waited for.
    """
    asked = select(Invoice).where(Invoice.id == invoice_id).options(joinedload(Invoice.document))
    invoice = (await session.scalars(asked)).one_or_none()
    if invoice is None:
        raise HTTPException(404, "there is no such invoice")
    if invoice.number is None:
        raise HTTPException(409, "a draft has no PDF: issue the invoice first")
    if invoice.document is None:
        return await request_pdf(session, invoice_id)
    return invoice.document.pdf or render_pdf.handle(invoice.document.chain_id)


def _answer(status: int, body: Ready | Pending | RenderFailed) -> JSONResponse:
    headers = {"Retry-After": str(math.ceil(body.retry_after_ms / 1000))} if isinstance(body, Pending) else {}
    return JSONResponse(body.model_dump(by_alias=True), status_code=status, headers=headers)
