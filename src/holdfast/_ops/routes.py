"""Every route of the application: from this table come the routes, who may take them, and the OpenAPI document."""

from __future__ import annotations

from importlib.metadata import version

from starlette.responses import JSONResponse, Response

from holdfast._logs.log import Log
from holdfast._ops import health, requests, responses
from holdfast._ops.access import check_header
from holdfast._ops.live import LiveResponse
from holdfast._ops.openapi import document
from holdfast._ops.outbox import TickFailed
from holdfast._ops.person import RequestRefused, Role
from holdfast._ops.route import Call, Route
from holdfast._ops.session import COOKIE
from holdfast._store.access import end_session

log = Log(__name__)


VIEWER, OPERATOR, DEVELOPER = Role.VIEWER, Role.OPERATOR, Role.DEVELOPER


async def _me(call: Call) -> responses.Me:
    return responses.Me(name=call.by.name, role=call.by.role, version=version("holdfast"))


async def _openapi(call: Call) -> Response:
    return JSONResponse(document(call.operations.routes))


async def _sign_in(call: Call) -> Response:
    person, session = await call.operations.access.login(call.request, call.body.token)
    me = responses.Me(name=person.name, role=person.role, version=version("holdfast"))
    response = Response(me.model_dump_json(), media_type="application/json")
    call.operations.sessions.write(call.request, response, session)
    return response


async def _sign_out(call: Call) -> Response:
    if COOKIE in call.request.cookies:
        check_header(call.request)
        if session := call.operations.sessions.read(call.request.cookies[COOKIE]):
            await call.service.ask(end_session(session.id, session.until))
            call.operations.access.sign_out(session.id)
    response = Response(responses.Done(message="Signed out.").model_dump_json(), media_type="application/json")
    call.operations.sessions.forget(call.request, response)
    return response


async def _pulse(call: Call) -> Response:
    pulse = call.operations.pulse
    pulse.check(call.by)

    async def still() -> bool:
        try:
            await call.operations.access.allowed(call.request, VIEWER)
        except RequestRefused as exc:
            # If the database does not answer now, the stream reports that.
            return exc.status not in (401, 403)
        except Exception:
            log.exception("cannot check whether a client may still listen")
            return False
        return True

    return LiveResponse(pulse, call.by, still)


async def _stats(call: Call) -> responses.Stats:
    return await call.operations.outbox.stats(call.service)


async def _run_once(call: Call) -> responses.RunOnce:
    try:
        done = await call.operations.outbox.run_once(lambda: call.service.record(call.by, "outbox.run_once.begin"))
    except TickFailed as exc:
        await call.service.record(call.by, "outbox.run_once", error=exc.message)
        raise
    summary = done.summary.model_dump()
    await call.service.record(call.by, "outbox.run_once", jobs=done.summary.processed, **summary)
    return done


async def _live(_: Call) -> Response:
    return await health.live()


async def _ready(call: Call) -> Response:
    return await call.operations.probes.ready(call.service)


async def _metrics(call: Call) -> Response:
    return await call.operations.probes.metrics(call.service, call.request.headers.get("accept", ""))


# fmt: off
ROUTES: tuple[Route, ...] = (
    Route("GET", "/live", None, "Whether this process answers", health.Live, _live, query=None),
    Route("GET", "/ready", None, "Whether jobs are worked on: a database that answers, a live worker, a reaper",
          health.Ready, _ready, query=None, also=((503, health.Ready),)),
    Route("GET", "/metrics", VIEWER, "Metrics of the fleet, and of the workers in this process, for Prometheus",
          "text/plain", _metrics, query=None, refusals=(404,)),
    Route("GET", "/api/openapi.json", None, "This document", "application/json", _openapi),
    Route("POST", "/api/session", None, "Sign a browser in with a token", responses.Me, _sign_in, body=requests.Login,
          refusals=(401, 403, 429, 503)),
    Route("DELETE", "/api/session", None, "Sign a browser out", responses.Done, _sign_out, refusals=(403, 503)),
    Route("GET", "/api/me", VIEWER, "The caller and the role", responses.Me, _me),
    Route("GET", "/api/overview", VIEWER, "Whether all is well", responses.Overview,
          lambda call: call.service.overview(call.query.minutes), query=requests.OverviewQuestion),
    Route("GET", "/api/pulse", VIEWER, "The overview of the last hour every two seconds, as Server-Sent Events: "
          "messages with what /api/overview answers, and events `trouble` with a refusal", "text/event-stream", _pulse),
    Route("GET", "/api/jobs", VIEWER, "Jobs by a filter, newest first", responses.JobPage,
          lambda call: call.service.jobs(call.query), query=requests.JobSearch),
    Route("POST", "/api/jobs/actions", OPERATOR, "Retry, cancel, delete or reschedule jobs, by ids or by a filter",
          responses.JobActionResult, lambda call: call.service.act_on_jobs(call.body, call.by), body=requests.JobAction,
          refusals=(409,)),
    Route("GET", "/api/jobs/{id}", VIEWER, "Everything that is known of a job", responses.JobStory,
          lambda call: call.service.job(call.path["id"])),
    Route("GET", "/api/chains", VIEWER, "Chains, newest first", responses.ChainPage,
          lambda call: call.service.chains(call.query), query=requests.ChainSearch),
    Route("GET", "/api/chains/{id}", VIEWER, "A chain as a graph", responses.ChainGraph,
          lambda call: call.service.chain(call.path["id"])),
    Route("GET", "/api/dead-letters", VIEWER, "Dead letters by their errors", responses.DeadLetters,
          lambda call: call.service.dead_letters(call.query), query=requests.DeadLetterSearch),
    Route("GET", "/api/runners", VIEWER, "Runners and schedules, and when they run next", responses.Runners,
          lambda call: call.service.runners()),
    Route("GET", "/api/runners/{name}/runs", VIEWER, "The runs of a runner, newest first", responses.RunPage,
          lambda call: call.service.runs(call.path["name"], call.query.most), query=requests.Newest),
    Route("POST", "/api/runners/{name}/actions", OPERATOR, "Run a runner now, pause or resume it", responses.Done,
          lambda call: call.service.act_on_runner(call.path["name"], call.body, call.by), body=requests.RunnerAction,
          refusals=(409,)),
    Route("GET", "/api/runs", VIEWER, "The runs of all runners, newest first", responses.RunPage,
          lambda call: call.service.runs(None, call.query.most), query=requests.Newest),
    Route("GET", "/api/workers", VIEWER, "Workers, and kinds without a worker", responses.Workers,
          lambda call: call.service.workers()),
    Route("GET", "/api/queues", VIEWER, "Queues, what is in them, and how they run", responses.Queues,
          lambda call: call.service.queues()),
    Route("POST", "/api/queues/{queue}/actions", OPERATOR, "Pause, resume or drain a queue",
          (responses.Done, responses.JobActionResult),
          lambda call: call.service.act_on_queue(call.path["queue"], call.body, call.by), body=requests.QueueAction,
          refusals=(409,)),
    Route("PUT", "/api/queues/{queue}", OPERATOR, "Set a queue's concurrency, lease and rate while workers run",
          responses.Done, lambda call: call.service.set_queue(call.path["queue"], call.body, call.by),
          body=requests.QueueControl, refusals=(409,)),
    Route("GET", "/api/kinds", VIEWER, "Kinds, and what became of their jobs within the last hour", responses.Kinds,
          lambda call: call.service.kinds()),
    Route("GET", "/api/subscriptions", VIEWER, "Subscriptions, and how far behind they are", responses.Subscriptions,
          lambda call: call.service.subscriptions()),
    Route("GET", "/api/subscriptions/{name}/parked", VIEWER, "Parked events of a subscription", responses.ParkedPage,
          lambda call: call.service.parked(call.path["name"], call.query), query=requests.Before),
    Route("POST", "/api/subscriptions/{name}/actions", OPERATOR,
          "Pause, resume, replay or skip a subscription, or release what it parked", responses.Done,
          lambda call: call.service.act_on_subscription(call.path["name"], call.body, call.by),
          body=requests.SubscriptionAction, refusals=(409,)),
    Route("GET", "/api/audit", VIEWER, "The audit log, newest first", responses.AuditPage,
          lambda call: call.service.audit(call.query), query=requests.Before),
    Route("GET", "/outbox/stats", DEVELOPER, "How the outbox fares", responses.Stats, _stats),
    Route("POST", "/outbox/run-once", DEVELOPER, "Run one tick of the outbox and the reaper in this process",
          responses.RunOnce, _run_once, refusals=(409,)),
)
# fmt: on
