"""Every route of the application: from this table come the routes, who may take them, and the OpenAPI document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from starlette.responses import JSONResponse, Response

from holdfast.logs import Log
from holdfast.ops import answer, health, question
from holdfast.ops.answer import Answer
from holdfast.ops.openapi import document
from holdfast.ops.origin import check_header
from holdfast.ops.outbox import TickFailed
from holdfast.ops.pulse import PulseResponse
from holdfast.ops.reading import Nothing
from holdfast.ops.refusal import Refused
from holdfast.ops.role import Role
from holdfast.ops.session import COOKIE
from holdfast.store.access import end_session

if TYPE_CHECKING:
    from starlette.requests import Request

    from holdfast.ops.application import Operations
    from holdfast.ops.desk import Desk
    from holdfast.ops.person import Person

log = Log(__name__)

Method: TypeAlias = Literal["GET", "POST", "PUT", "DELETE"]


@dataclass(frozen=True, slots=True)
class Call:
    """A request that was read and may be answered."""

    request: Request
    operations: Operations
    desk: Desk
    by: Person
    path: Mapping[str, Any]
    query: Any
    body: Any


Handler: TypeAlias = Callable[[Call], Awaitable[Answer | Response]]
Answers: TypeAlias = type[Answer] | tuple[type[Answer], ...] | str


@dataclass(frozen=True, slots=True)
class Route:
    method: Method
    path: str
    """`{id}` is an id, `{name}` and `{queue}` are names, slashes included."""
    role: Role | None
    """None: anybody."""
    summary: str
    answer: Answers
    """The model, or one of several; a media type where it is no JSON of ours."""
    handler: Handler
    query: type[question.Question] | None = Nothing
    """None: whatever is there is not looked at."""
    body: type[question.Question] | None = None
    refusals: tuple[int, ...] = ()
    """Beyond those that the rest of the line implies."""
    also: tuple[tuple[int, type[Answer]], ...] = ()
    """What is answered with another status than 200, and is no refusal."""


VIEWER, OPERATOR, DEVELOPER = Role.VIEWER, Role.OPERATOR, Role.DEVELOPER


async def _me(call: Call) -> answer.Me:
    return answer.Me(name=call.by.name, role=call.by.role, version=version("holdfast"))


async def _openapi(call: Call) -> Response:
    return JSONResponse(document(call.operations.routes))


async def _sign_in(call: Call) -> Response:
    person, session = await call.operations.access.login(call.request, call.body.token)
    me = answer.Me(name=person.name, role=person.role, version=version("holdfast"))
    response = Response(me.model_dump_json(), media_type="application/json")
    call.operations.sessions.write(call.request, response, session)
    return response


async def _sign_out(call: Call) -> Response:
    if COOKIE in call.request.cookies:
        check_header(call.request)
        if session := call.operations.sessions.read(call.request.cookies[COOKIE]):
            await call.desk.ask(end_session(session.id, session.until))
            call.operations.access.sign_out(session.id)
    response = Response(answer.Done(message="Signed out.").model_dump_json(), media_type="application/json")
    call.operations.sessions.forget(call.request, response)
    return response


async def _pulse(call: Call) -> Response:
    pulse = call.operations.pulse
    pulse.check(call.by)

    async def still() -> bool:
        try:
            await call.operations.access.allowed(call.request, VIEWER)
        except Refused as exc:
            # That the database cannot say so just now is told by the stream itself.
            return exc.status not in (401, 403)
        except Exception:
            log.exception("whether somebody may still listen cannot be said")
            return False
        return True

    return PulseResponse(pulse, call.by, still)


async def _stats(call: Call) -> answer.Stats:
    return await call.operations.outbox.stats(call.desk)


async def _run_once(call: Call) -> answer.RunOnce:
    try:
        done = await call.operations.outbox.run_once(lambda: call.desk.record(call.by, "outbox.run_once.begin"))
    except TickFailed as exc:
        await call.desk.record(call.by, "outbox.run_once", error=exc.message)
        raise
    summary = done.summary.model_dump()
    await call.desk.record(call.by, "outbox.run_once", jobs=done.summary.processed, **summary)
    return done


async def _live(_: Call) -> Response:
    return await health.live()


async def _ready(call: Call) -> Response:
    return await call.operations.probes.ready(call.desk)


async def _metrics(call: Call) -> Response:
    return await call.operations.probes.metrics(call.desk, call.request.headers.get("accept", ""))


# fmt: off
ROUTES: tuple[Route, ...] = (
    Route("GET", "/live", None, "Whether this process answers", health.Live, _live, query=None),
    Route("GET", "/ready", None, "Whether jobs are worked on: the database is there, a worker lives, somebody reaps",
          health.Ready, _ready, query=None, also=((503, health.Ready),)),
    Route("GET", "/metrics", VIEWER, "Metrics of the fleet, and of the workers in this process, for Prometheus",
          "text/plain", _metrics, query=None, refusals=(404,)),
    Route("GET", "/api/openapi.json", None, "This document", "application/json", _openapi),
    Route("POST", "/api/session", None, "Sign a browser in with a token", answer.Me, _sign_in, body=question.Login,
          refusals=(401, 403, 429, 503)),
    Route("DELETE", "/api/session", None, "Sign a browser out", answer.Done, _sign_out, refusals=(403, 503)),
    Route("GET", "/api/me", VIEWER, "Who asks, and what they may", answer.Me, _me),
    Route("GET", "/api/overview", VIEWER, "Whether all is well", answer.Overview,
          lambda call: call.desk.overview(call.query.minutes), query=question.OverviewQuestion),
    Route("GET", "/api/pulse", VIEWER, "The overview of the last hour every two seconds, as Server-Sent Events: "
          "messages with what /api/overview answers, and events `trouble` with a refusal", "text/event-stream", _pulse),
    Route("GET", "/api/jobs", VIEWER, "Jobs by a filter, newest first", answer.JobPage,
          lambda call: call.desk.jobs(call.query), query=question.JobSearch),
    Route("POST", "/api/jobs/actions", OPERATOR, "Retry, cancel, delete or reschedule jobs, by ids or by a filter",
          answer.JobActionResult, lambda call: call.desk.act_on_jobs(call.body, call.by), body=question.JobAction,
          refusals=(409,)),
    Route("GET", "/api/jobs/{id}", VIEWER, "Everything that is known of a job", answer.JobStory,
          lambda call: call.desk.job(call.path["id"])),
    Route("GET", "/api/chains", VIEWER, "Chains, newest first", answer.ChainPage,
          lambda call: call.desk.chains(call.query), query=question.ChainSearch),
    Route("GET", "/api/chains/{id}", VIEWER, "A chain as a graph", answer.ChainGraph,
          lambda call: call.desk.chain(call.path["id"])),
    Route("GET", "/api/dead-letters", VIEWER, "Dead letters by their errors", answer.DeadLetters,
          lambda call: call.desk.dead_letters(call.query), query=question.DeadLetterSearch),
    Route("GET", "/api/runners", VIEWER, "Runners and schedules, and when they run next", answer.Runners,
          lambda call: call.desk.runners()),
    Route("GET", "/api/runners/{name}/runs", VIEWER, "The runs of a runner, newest first", answer.RunPage,
          lambda call: call.desk.runs(call.path["name"], call.query.most), query=question.Newest),
    Route("POST", "/api/runners/{name}/actions", OPERATOR, "Run a runner now, pause or resume it", answer.Done,
          lambda call: call.desk.act_on_runner(call.path["name"], call.body, call.by), body=question.RunnerAction,
          refusals=(409,)),
    Route("GET", "/api/runs", VIEWER, "The runs of all runners, newest first", answer.RunPage,
          lambda call: call.desk.runs(None, call.query.most), query=question.Newest),
    Route("GET", "/api/workers", VIEWER, "Workers, and kinds that nobody serves", answer.Workers,
          lambda call: call.desk.workers()),
    Route("GET", "/api/queues", VIEWER, "Queues, what is in them, and how they run", answer.Queues,
          lambda call: call.desk.queues()),
    Route("POST", "/api/queues/{queue}/actions", OPERATOR, "Pause, resume or drain a queue",
          (answer.Done, answer.JobActionResult),
          lambda call: call.desk.act_on_queue(call.path["queue"], call.body, call.by), body=question.QueueAction,
          refusals=(409,)),
    Route("PUT", "/api/queues/{queue}", OPERATOR, "Set a queue's concurrency, lease and rate while workers run",
          answer.Done, lambda call: call.desk.set_queue(call.path["queue"], call.body, call.by),
          body=question.QueueControl, refusals=(409,)),
    Route("GET", "/api/kinds", VIEWER, "Kinds, and what became of their jobs within the last hour", answer.Kinds,
          lambda call: call.desk.kinds()),
    Route("GET", "/api/subscriptions", VIEWER, "Subscriptions, and how far behind they are", answer.Subscriptions,
          lambda call: call.desk.subscriptions()),
    Route("GET", "/api/subscriptions/{name}/parked", VIEWER, "What a subscription has parked", answer.ParkedPage,
          lambda call: call.desk.parked(call.path["name"], call.query), query=question.Before),
    Route("POST", "/api/subscriptions/{name}/actions", OPERATOR,
          "Pause, resume, replay or skip a subscription, or release what it parked", answer.Done,
          lambda call: call.desk.act_on_subscription(call.path["name"], call.body, call.by),
          body=question.SubscriptionAction, refusals=(409,)),
    Route("GET", "/api/audit", VIEWER, "What people did, newest first", answer.AuditPage,
          lambda call: call.desk.audit(call.query), query=question.Before),
    Route("GET", "/outbox/stats", DEVELOPER, "How the outbox fares", answer.Stats, _stats),
    Route("POST", "/outbox/run-once", DEVELOPER, "Run one tick of the outbox and the reaper in this process",
          answer.RunOnce, _run_once, refusals=(409,)),
)
# fmt: on
