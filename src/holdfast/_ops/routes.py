"""Every route of the application: its role, its models and its handler, and the state that all calls share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from starlette.responses import JSONResponse, Response

from holdfast._distribution import version
from holdfast._logs.log import Log
from holdfast._ops import health, requests
from holdfast._ops.access import COOKIE, Access, check_header
from holdfast._ops.caller import Failures, RequestRefused, Role
from holdfast._ops.live import LiveResponse
from holdfast._ops.newest import CachedReading
from holdfast._ops.outbox import TickFailed
from holdfast._ops.responses import archive, fleet, job
from holdfast._ops.responses.trends import Trends
from holdfast._ops.trends import read_trends
from holdfast._store.access import end_session, find_access_token, is_session_ended
from holdfast._store.answer import Answer
from holdfast._store.bulk_action_line import BulkAction

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request

    from holdfast._ops.access import Authenticate, Sessions
    from holdfast._ops.archive import ArchiveEndpoints
    from holdfast._ops.caller import Person
    from holdfast._ops.databases import WatchedDatabase
    from holdfast._ops.health import Probes
    from holdfast._ops.jwt import JwtAccess
    from holdfast._ops.service import Service
    from holdfast._store.access import AccessToken

log = Log(__name__)

VIEWER, OPERATOR, DEVELOPER = Role.VIEWER, Role.OPERATOR, Role.DEVELOPER
BASE = "/api/v1"
PREFIX = f"{BASE}/databases/{{database}}"
"""With several databases, the paths of one begin so."""
_JSON = "application/json"

Method: TypeAlias = Literal["GET", "POST", "PUT", "DELETE"]
Handler: TypeAlias = "Callable[[Call], Awaitable[Answer | Response]]"
Answers: TypeAlias = type[Answer] | tuple[type[Answer], ...] | str


@dataclass(frozen=True, slots=True)
class Route:
    name: str
    """The operation id: the name of its function in a generated client."""
    method: Method
    path: str
    """`{id}` is an id, `{name}` and `{queue}` are names, slashes included."""
    role: Role | None
    """None: anybody."""
    summary: str
    answer: Answers
    """The model, or one of several; a media type where it is no JSON of ours."""
    handler: Handler
    query: type[requests.Question] | None = requests.Nothing
    """None: whatever is there is not looked at."""
    body: type[requests.Question] | None = None
    refusals: tuple[int, ...] = ()
    """Beyond those that the rest of the line implies."""
    limits_itself: bool = False
    """True: the handler waits for something other than the database, so it takes the caller's turns itself."""
    also: tuple[tuple[int, type[Answer]], ...] = ()
    """Answers with another status than 200 that are not refusals."""
    edits: bool = False
    """True: it may be asked for with `If-Match`."""
    whole: bool = False
    """True: it is about the whole application. With several databases, every other route names one in its path."""

    def of_one_of_several(self) -> Route:
        """Return this route as it is where several databases are served."""
        return self if self.whole else replace(self, path=PREFIX + self.path.removeprefix(BASE))


@dataclass(frozen=True, slots=True)
class Call:
    """A request that was read and may be answered."""

    request: Request
    operations: Operations
    database: WatchedDatabase
    by: Person
    path: Mapping[str, Any]
    query: Any
    body: Any

    @property
    def if_match(self) -> str | None:
        return self.request.headers.get("if-match")

    @property
    def service(self) -> Service:
        return self.database.service


class Operations:
    """The application's state while it runs."""

    def __init__(  # noqa: PLR0913 - the parts it is composed of
        self,
        databases: Mapping[str, WatchedDatabase],
        *,
        document: Callable[[], dict[str, Any]],
        archive: ArchiveEndpoints,
        probes: Probes,
        sessions: Sessions,
        jwt: JwtAccess | None,
        authenticate: Authenticate | None,
    ) -> None:
        """`databases` by name; the tokens and ended sessions are those of the first. `document`: the OpenAPI one."""
        self.databases = databases
        self.first: WatchedDatabase = next(iter(databases.values()))
        self.several: bool = len(databases) > 1
        self.document = document
        self.archive = archive
        self.probes = probes
        self.sessions = sessions

        async def find(key: str) -> AccessToken | None:
            return await self.first.service.run(find_access_token(key))

        async def is_ended(session: str) -> bool:
            return await self.first.service.run(is_session_ended(session))

        # While the first of several databases does not answer, the pages of the others are served.
        self.access = Access(
            CachedReading(find) if self.several else find,
            sessions=sessions,
            failures=Failures(),
            jwt=jwt,
            authenticate=authenticate,
            is_ended=CachedReading(is_ended) if self.several else is_ended,
        )

    def database(self, name: str | None) -> WatchedDatabase:
        """Return the database of this name; for None, the first."""
        if name is None:
            return self.first
        found = self.databases.get(name)
        if found is None:
            raise RequestRefused(404, "not_found", f"There is no database {name}. See {BASE}/databases.")
        return found

    def end_streams(self) -> None:
        for database in self.databases.values():
            database.end_streams()

    @property
    def services(self) -> dict[str, Service]:
        """The service of each database, by name; the name is empty if there is only one."""
        return {name if self.several else "": database.service for name, database in self.databases.items()}

    async def close(self) -> None:
        """End the streams and close the connections. A later request opens them again."""
        await asyncio.gather(*(database.close() for database in self.databases.values()))


def _me(person: Person, operations: Operations) -> job.Me:
    names = list(operations.databases) if operations.several else []
    return job.Me(name=person.name, role=person.role, version=version(), databases=names)


async def _who_am_i(call: Call) -> job.Me:
    return _me(call.by, call.operations)


async def _databases(call: Call) -> fleet.DatabaseLines:
    lines = await asyncio.gather(*(database.line() for database in call.operations.databases.values()))
    return fleet.DatabaseLines(items=lines)


async def _openapi(call: Call) -> Response:
    return JSONResponse(call.operations.document())


async def _sign_in(call: Call) -> Response:
    person, session = await call.operations.access.login(call.request, call.body.token)
    response = Response(_me(person, call.operations).model_dump_json(), media_type=_JSON)
    call.operations.sessions.write(call.request, response, session)
    return response


async def _sign_out(call: Call) -> Response:
    if COOKIE in call.request.cookies:
        check_header(call.request)
        if session := call.operations.sessions.read(call.request.cookies[COOKIE]):
            await call.service.run(end_session(session.id, session.until))
            call.operations.access.sign_out(session.id)
    response = Response(job.Done(message="Signed out.").model_dump_json(), media_type=_JSON)
    call.operations.sessions.forget(call.request, response)
    return response


async def _live_overview(call: Call) -> Response:
    live = call.database.opened.live
    live.check(call.by)

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

    return LiveResponse(live, call.by, still)


async def _archived_job(call: Call) -> archive.ArchivedJob:
    return await call.operations.archive.job(call.service, call.path["id"], call.by, call.database.opened.shares)


async def _run_once(call: Call) -> fleet.RunOnce:
    try:
        done = await call.database.outbox.run_once(lambda: call.service.record(call.by, "outbox.run_once.begin"))
    except TickFailed as exc:
        await call.service.record(call.by, "outbox.run_once", error=exc.message)
        raise
    summary = done.summary.model_dump()
    await call.service.record(call.by, "outbox.run_once", jobs=done.summary.processed, **summary)
    return done


# fmt: off
ROUTES: tuple[Route, ...] = (
    Route("get_live", "GET", "/live", None, "Whether this process answers", health.Live, lambda _: health.live(),
          query=None, whole=True),
    Route("get_ready", "GET", "/ready", None,
          "Whether jobs are worked on: a database that answers, a live worker, a reaper", health.Ready,
          lambda call: call.operations.probes.ready(call.operations.services), query=None, also=((503, health.Ready),),
          whole=True),
    Route("get_metrics", "GET", "/metrics", VIEWER,
          "Metrics of the fleet, and of the workers in this process, for Prometheus", "text/plain",
          lambda call: call.operations.probes.metrics(call.operations.services, call.request.headers), query=None,
          refusals=(404,), limits_itself=True, whole=True),
    Route("get_openapi", "GET", "/api/v1/openapi.json", None, "This document", "application/json", _openapi,
          whole=True),
    Route("sign_in", "POST", "/api/v1/session", None, "Sign a browser in with a token", job.Me, _sign_in,
          body=requests.Login, refusals=(401, 403, 429, 503), whole=True),
    Route("sign_out", "DELETE", "/api/v1/session", None, "Sign a browser out", job.Done, _sign_out, refusals=(403, 503),
          whole=True),
    Route("get_me", "GET", "/api/v1/me", VIEWER,
          "The caller, the role, and the names of the databases if there are several", job.Me, _who_am_i,
          limits_itself=True, whole=True),
    Route("list_databases", "GET", "/api/v1/databases", VIEWER,
          "The databases: whether each answers, and how much waits there", fleet.DatabaseLines, _databases,
          limits_itself=True, whole=True),
    Route("get_overview", "GET", "/api/v1/overview", VIEWER, "Whether all is well", fleet.Overview,
          lambda call: call.service.overview(call.query.minutes), query=requests.OverviewQuestion),
    Route("watch_overview", "GET", "/api/v1/overview/live", VIEWER,
          "The overview of the last hour every two seconds, as Server-Sent Events: messages with an overview, and "
          "events `trouble` with a refusal",
          "text/event-stream", _live_overview),
    Route("list_jobs", "GET", "/api/v1/jobs", VIEWER, "Jobs by a filter, newest first", job.JobPage,
          lambda call: call.service.jobs(call.query), query=requests.JobSearch),
    Route("act_on_jobs", "POST", "/api/v1/jobs/actions", OPERATOR,
          "Retry, cancel, delete or reschedule jobs, by ids or by a filter", job.JobActionResult,
          lambda call: call.service.act_on_jobs(call.body, call.by), body=requests.JobAction, refusals=(409,)),
    Route("list_bulk_actions", "GET", "/api/v1/bulk-actions", VIEWER,
          "Actions on all jobs of a filter: open ones, then the newest", job.BulkActions,
          lambda call: call.service.bulk_actions(call.query.limit), query=requests.Newest),
    Route("get_bulk_action", "GET", "/api/v1/bulk-actions/{id}", VIEWER,
          "An action on all jobs of a filter, and how far it is", BulkAction,
          lambda call: call.service.bulk_action(call.path["id"])),
    Route("act_on_bulk_action", "POST", "/api/v1/bulk-actions/{id}/actions", OPERATOR,
          "Stop or resume an action on all jobs of a filter", BulkAction,
          lambda call: call.service.control_bulk_action(call.path["id"], call.body, call.by),
          body=requests.BulkActionControl, refusals=(409,)),
    Route("act_on_order_key", "POST", "/api/v1/order-keys/actions", OPERATOR,
          "Resume an order key that a dead letter has stopped", job.Done,
          lambda call: call.service.act_on_order_key(call.body, call.by), body=requests.OrderKeyAction,
          refusals=(404, 409)),
    Route("get_job", "GET", "/api/v1/jobs/{id}", VIEWER, "Everything that is known of a job", job.JobStory,
          lambda call: call.service.job(call.path["id"])),
    Route("list_chains", "GET", "/api/v1/chains", VIEWER, "Chains, newest first", job.ChainPage,
          lambda call: call.service.chains(call.query), query=requests.ChainSearch),
    Route("get_chain", "GET", "/api/v1/chains/{id}", VIEWER, "A chain as a graph", job.ChainGraph,
          lambda call: call.service.chain(call.path["id"])),
    Route("list_dead_letters", "GET", "/api/v1/dead-letters", VIEWER, "Dead letters by their errors", job.DeadLetters,
          lambda call: call.service.dead_letters(call.query), query=requests.DeadLetterSearch),
    Route("act_on_dead_letters", "POST", "/api/v1/dead-letters/actions", OPERATOR,
          "Dismiss a group of dead letters until one more job fails, or show it again", job.Done,
          lambda call: call.service.act_on_dead_letters(call.body, call.by), body=requests.DeadLetterAction,
          refusals=(404, 409)),
    Route("list_runners", "GET", "/api/v1/runners", VIEWER, "Runners and schedules, and when they run next",
          fleet.Runners, lambda call: call.service.runners()),
    Route("list_runs_of_runner", "GET", "/api/v1/runners/{name}/runs", VIEWER, "The runs of a runner, newest first",
          fleet.RunPage, lambda call: call.service.runs(call.path["name"], call.query.limit), query=requests.Newest),
    Route("act_on_runner", "POST", "/api/v1/runners/{name}/actions", OPERATOR, "Run a runner, or change its schedule",
          job.Done,
          lambda call: call.service.act_on_runner(call.path["name"], call.body, call.by, if_match=call.if_match),
          body=requests.RunnerAction, refusals=(409, 412), edits=True),
    Route("list_runs", "GET", "/api/v1/runs", VIEWER, "The runs of all runners, newest first", fleet.RunPage,
          lambda call: call.service.runs(None, call.query.limit), query=requests.Newest),
    Route("list_workers", "GET", "/api/v1/workers", VIEWER, "Workers, and kinds without a worker", fleet.Workers,
          lambda call: call.service.workers()),
    Route("list_queues", "GET", "/api/v1/queues", VIEWER, "Queues, what is in them, and how they run", fleet.Queues,
          lambda call: call.service.queues()),
    Route("act_on_queue", "POST", "/api/v1/queues/{queue}/actions", OPERATOR,
          "Pause or resume a queue, or cancel what waits in it", (job.Done, job.JobActionResult),
          lambda call: call.service.act_on_queue(call.path["queue"], call.body, call.by), body=requests.QueueAction,
          refusals=(409,)),
    Route("set_queue", "PUT", "/api/v1/queues/{queue}", OPERATOR,
          "Set a queue's concurrency, lease and rate while workers run", job.Done,
          lambda call: call.service.set_queue(call.path["queue"], call.body, call.by, if_match=call.if_match),
          body=requests.QueueControl, refusals=(409, 412), edits=True),
    Route("list_limits", "GET", "/api/v1/limits", VIEWER, "Limits, what runs under them and what waits", fleet.Limits,
          lambda call: call.service.limits()),
    Route("set_limit", "PUT", "/api/v1/limits/{name}", OPERATOR, "Set what a limit allows, whatever the code declares",
          job.Done, lambda call: call.service.set_limit(call.path["name"], call.body, call.by, if_match=call.if_match),
          body=requests.LimitControl, refusals=(404, 409, 412), edits=True),
    Route("reset_limit", "DELETE", "/api/v1/limits/{name}", OPERATOR, "Go back to what the code declares for a limit",
          job.Done, lambda call: call.service.reset_limit(call.path["name"], call.by, if_match=call.if_match),
          refusals=(404, 409, 412), edits=True),
    Route("get_trends", "GET", "/api/v1/trends", VIEWER, "Ended attempts and the backlog up to a week back",
          Trends, lambda call: read_trends(call.service, call.query), query=requests.TrendQuestion),
    Route("list_kinds", "GET", "/api/v1/kinds", VIEWER, "Kinds, and what became of their jobs within the last hour",
          fleet.Kinds, lambda call: call.service.kinds()),
    Route("list_subscriptions", "GET", "/api/v1/subscriptions", VIEWER, "Subscriptions, and how far behind they are",
          fleet.Subscriptions, lambda call: call.service.subscriptions()),
    Route("list_parked_events", "GET", "/api/v1/subscriptions/{name}/parked", VIEWER, "Parked events of a subscription",
          fleet.ParkedPage, lambda call: call.service.parked(call.path["name"], call.query), query=requests.Before),
    Route("act_on_subscription", "POST", "/api/v1/subscriptions/{name}/actions", OPERATOR,
          "Pause, resume, replay or skip a subscription, or release what it parked", job.Done,
          lambda call: call.service.act_on_subscription(call.path["name"], call.body, call.by),
          body=requests.SubscriptionAction, refusals=(409,)),
    Route("get_archive", "GET", "/api/v1/archive", VIEWER,
          "The archive: its sources, how long rows are kept, and the next drop", archive.ArchiveSummary,
          lambda call: call.operations.archive.summary(call.service)),
    Route("list_exports", "GET", "/api/v1/archive/exports", VIEWER,
          "The files of the archive, those that are not verified first", archive.ExportPage,
          lambda call: call.operations.archive.exports(call.service, call.query), query=requests.ExportSearch),
    Route("set_retention", "PUT", "/api/v1/archive/retention", OPERATOR,
          "Set how many days ended rows of a family are kept", job.Done,
          lambda call: call.service.set_retention(call.body, call.by, if_match=call.if_match),
          body=requests.RetentionChange, refusals=(409, 412), edits=True),
    Route("get_archived_job", "GET", "/api/v1/archive/jobs/{id}", VIEWER,
          "A job and its attempts, read from the files of the archive", archive.ArchivedJob, _archived_job,
          limits_itself=True),
    Route("list_audit", "GET", "/api/v1/audit", VIEWER, "The audit log, newest first", job.AuditPage,
          lambda call: call.service.audit(call.query), query=requests.Before),
    Route("get_outbox_stats", "GET", "/outbox/stats", DEVELOPER, "How the outbox fares", fleet.Stats,
          lambda call: call.database.outbox.stats(call.service)),
    Route("run_outbox_once", "POST", "/outbox/run-once", DEVELOPER,
          "Run one tick of the outbox and the reaper in this process", fleet.RunOnce, _run_once, refusals=(409,)),
)
# fmt: on
