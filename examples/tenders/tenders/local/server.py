"""The market and the provider over HTTP. `python -m tenders.local.server --port 8080`.

`/control` shows and changes them: `POST /control {"publish": 3}`, `{"page": "broken"}`, `{"push": {"send": …}}`.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Annotated, Any, Literal

import uvicorn
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tenders.expo import PUSHES, RECEIPTS
from tenders.local.market import Market
from tenders.local.push import MOST, Faults, Message, PushServer

if TYPE_CHECKING:
    from starlette.requests import Request

TENDERS = 6
_MESSAGES = TypeAdapter(Annotated[list[Message], Field(min_length=1, max_length=PUSHES)])


class Control(BaseModel):
    """A change. Fields that are not given stay as they are."""

    model_config = ConfigDict(extra="forbid")

    publish: int = Field(default=0, ge=0, le=1_000)
    """Tenders to publish now."""
    page: Literal["ok", "broken", "changed"] | None = None
    """The page that is scraped."""
    api: Literal["ok", "broken"] | None = None
    push: Faults | None = None


class Tickets(BaseModel):
    ids: list[str] = Field(min_length=1, max_length=RECEIPTS)


class LocalServer:
    """The state of both, and the routes to it."""

    def __init__(self, tenders: int = TENDERS, *, seed: int | None = None) -> None:
        self.market = Market(tenders)
        self.push = PushServer(seed)
        self.page: Literal["ok", "broken", "changed"] = "ok"
        self.api: Literal["ok", "broken"] = "ok"
        routes = [
            Route("/api/licitaciones.json", self._list),
            Route("/buscador", self._page),
            Route("/push/send", self._send, methods=["POST"]),
            Route("/push/getReceipts", self._receipts, methods=["POST"]),
            Route("/control", self._control, methods=["GET", "POST"]),
            Route("/control/pushes", self._pushes),
        ]
        self.web = Starlette(routes=routes)

    async def _list(self, request: Request) -> Response:
        if self.api == "broken":
            return PlainTextResponse("error", status_code=500)
        query = request.query_params
        if codigo := query.get("codigo"):
            found = self.market.detailed(codigo)
        else:
            found = self.market.listed(query.get("fecha", ""))
        return JSONResponse({"Cantidad": len(found), "Version": "v1", "Listado": found})

    async def _page(self, _: Request) -> Response:
        match self.page:
            case "broken":
                return PlainTextResponse("error", status_code=500)
            case "changed":
                return HTMLResponse("<!doctype html><title>Nuevo buscador</title><main>…</main>")
            case "ok":
                return HTMLResponse(self.market.page())

    async def _send(self, request: Request) -> Response:
        try:
            messages = _MESSAGES.validate_json(await request.body())
        except ValidationError:
            return _refused(f"expected a list of 1 to {PUSHES} messages")
        return _response(*await self.push.send(messages))

    async def _receipts(self, request: Request) -> Response:
        try:
            ids = Tickets.model_validate_json(await request.body()).ids
        except ValidationError:
            return _refused(f"expected 1 to {RECEIPTS} ids")
        return _response(*await self.push.fetch_receipts(ids))

    async def _control(self, request: Request) -> Response:
        codes: list[str] = []
        if request.method == "POST":
            try:
                change = Control.model_validate_json(await request.body())
            except ValidationError as exc:
                return JSONResponse({"error": str(exc)}, status_code=422)
            codes = self.market.publish(change.publish)
            self.page, self.api = change.page or self.page, change.api or self.api
            self.push.faults = change.push or self.push.faults
        shown = {
            "published": codes,
            "tenders": len(self.market.tenders),
            "page": self.page,
            "api": self.api,
            "push": self.push.faults.model_dump(),
            "requests": dict(self.push.asked),
            "pushes": len(self.push.taken),
        }
        return JSONResponse(shown)

    async def _pushes(self, _: Request) -> Response:
        """Return what the provider got, the newest first."""
        return JSONResponse({"pushes": list(self.push.taken)[::-1][:MOST]})


def _refused(message: str) -> Response:
    return JSONResponse({"errors": [{"code": "VALIDATION_ERROR", "message": message}]}, status_code=400)


def _response(status: int, body: dict[str, Any], headers: dict[str, str]) -> Response:
    return JSONResponse(body, status_code=status, headers=headers)


def variables(address: str) -> dict[str, str]:
    """Return the settings that make the application use a local server."""
    return {
        "CHILECOMPRA_API_URL": f"{address}/api/licitaciones.json",
        "CHILECOMPRA_PAGE_URL": f"{address}/buscador",
        "CHILECOMPRA_TICKET": "local",
        "EXPO_URL": f"{address}/push",
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tenders.local.server", description=__doc__)
    parser.add_argument("--port", type=int, default=8080, help="default: 8080; 0: any free one")
    parser.add_argument("--tenders", type=int, default=TENDERS, help=f"published at the start; default: {TENDERS}")
    parser.add_argument("--seed", type=int, help="makes faults the same in every run")
    given = parser.parse_args()
    web = LocalServer(given.tenders, seed=given.seed).web
    uvicorn.run(web, host="127.0.0.1", port=given.port, access_log=False)


if __name__ == "__main__":
    main()
