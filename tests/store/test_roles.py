from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import psycopg
import pytest

from holdfast._drivers import run_sync
from holdfast._logs.failure import Failure
from holdfast._model.job import Progress
from holdfast._model.new_job import Envelope, NewJob
from holdfast._model.outcome import Completed, Failed, Retried
from holdfast._model.retry import Retry
from holdfast._model.work import Lease
from holdfast._store.chain import chain_ends, complete_chain, delete_chains, repair_blockers
from holdfast._store.claim import claim_jobs
from holdfast._store.enqueue import enqueue_job
from holdfast._store.finish import Ending, complete_job, finish_jobs
from holdfast._store.job import get_job, read_chain
from holdfast._store.lease import Held, claim_suspects, isolate_worker, reap_jobs, renew_leases, report_progress
from holdfast._store.schema import check, migrate
from holdfast._store.search import cancel_job, replay_job
from holdfast._store.sleeper import forget_watcher, watch_chains
from holdfast._store.subscription import list_subscriptions, subscribe
from holdfast._store.worker import ensure_partitions, register_worker

if TYPE_CHECKING:
    from collections.abc import Callable

ROLES = ["holdfast_producer", "holdfast_worker", "holdfast_viewer", "holdfast_operator"]
WRITES = ["INSERT", "UPDATE", "DELETE", "TRUNCATE"]

LIVE = (
    "blocker group_entry group_part job kept_end limit_place limit_rate limit_rule member message order_stop parked "
    "reader schedule sleeper step subscription sweep watcher worker"
)
PAGES = "access_token answered audit ended_session imported"
READ = "archive_exports census event identity landmark migration queue replay retention tenant"
CLEARED = "bulk_action dismissal landmark past_census position replay"
HISTORY = "attempt delivery inbox job_failed job_history past_census position run tally unique_window"
PRODUCING = {
    "enqueue", "enqueue_group", "enqueue_jobs", "get_result", "publish", "publish_events", "send_message", "set_weight",
}  # fmt: skip
LOOKING = {
    "lag", "position_of", "last_event_id", "cluster", "positions_are_valid", "take_census", "get_job", "find_ended",
    "history_spans", "todays_span", "expiry_clock", "waited", "with_before", "chains_left", "group_progress",
    "members_of",
}  # fmt: skip

Connection: TypeAlias = psycopg.Connection[Any]
Login: TypeAlias = "Callable[[str], Connection]"


class Function(NamedTuple):
    name: str
    call: str


def tables(conn: Connection) -> dict[str, str]:
    """Return the tables, partitions included, each with its first column."""
    found = conn.execute(
        """
        SELECT relname, attname FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid AND attnum = 1
        WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'p', 'v', 'm')
        """
    )
    return dict(found.fetchall())


def sequences(conn: Connection) -> list[str]:
    found = conn.execute("SELECT relname FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace AND relkind = 'S'")
    return [name for (name,) in found]


def functions(conn: Connection) -> list[Function]:
    """Return the functions, overloads one by one, and how to call each with nothing but nulls."""
    found = conn.execute(
        """
        SELECT proname, format('SELECT holdfast.%I(%s)', proname, (
            SELECT string_agg('NULL::' || format_type(a.type, NULL), ', ' ORDER BY a.n)
            FROM unnest(proargtypes) WITH ORDINALITY AS a (type, n)))
        FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace
        """
    )
    return [Function(name, call) for name, call in found]


def statement(verb: str, table: str, column: str) -> str:
    return {
        "SELECT": f"SELECT FROM holdfast.{table} LIMIT 0",
        "INSERT": f"INSERT INTO holdfast.{table} DEFAULT VALUES",
        "UPDATE": f"UPDATE holdfast.{table} SET {column} = DEFAULT WHERE false",
        "DELETE": f"DELETE FROM holdfast.{table} WHERE false",
        "TRUNCATE": f"TRUNCATE holdfast.{table}",
    }[verb]


def denied(conn: Connection, command: str) -> str | None:
    """Run and undo a command; return what it was denied, or None if it got past the privileges."""
    try:
        with conn.transaction(force_rollback=True):
            conn.execute(command.encode())
    except psycopg.errors.InsufficientPrivilege as error:
        return error.diag.message_primary
    except psycopg.errors.IntegrityError:
        return None  # permitted, and then the row was no good
    return None


def not_denied(conn: Connection, verb: str, among: dict[str, str]) -> set[str]:
    """Return the tables on which the verb does not end in a refusal of exactly that table."""
    return {
        table
        for table, column in among.items()
        if denied(conn, statement(verb, table, column)) != f"permission denied for table {table}"
    }


def one(conn: Connection, query: str, *values: object) -> Any:
    row = conn.execute(query.encode(), values).fetchone()
    assert row is not None
    return row[0]


def test_only_the_roles_have_rights(owner: Connection) -> None:
    may = "has_function_privilege('public', oid, 'EXECUTE')"
    open_functions = owner.execute(
        f"SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace AND {may}".encode()
    )
    assert open_functions.fetchall() == []
    for right in ("USAGE", "CREATE"):
        assert one(owner, "SELECT has_schema_privilege('public', 'holdfast', %s)", right) is False
    for table in tables(owner):
        assert (
            one(
                owner, "SELECT has_table_privilege('public', %s, 'SELECT, INSERT, UPDATE, DELETE')", f"holdfast.{table}"
            )
            is False
        )


def test_the_roles_cannot_log_in_and_have_no_powers(owner: Connection) -> None:
    found = owner.execute(
        """
        SELECT rolname, rolcanlogin OR rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication OR rolbypassrls
        FROM pg_roles WHERE rolname LIKE 'holdfast\\_%'
        """
    )
    assert dict(found.fetchall()) == dict.fromkeys(ROLES, False)


def test_a_producer_enqueues(login: Login, owner: Connection) -> None:
    producer = login("holdfast_producer")
    jobs = [
        {"kind": "mail"},
        {"kind": "mail", "unique_key": "a", "unique_window_ms": 1000},
        {"kind": "mail", "order_key": "k"},
    ]
    made = producer.execute("SELECT id FROM holdfast.enqueue_jobs(%s)", [json.dumps(jobs)]).fetchall()
    made += producer.execute("SELECT holdfast.enqueue('mail', '{}', unique_key => 'b')").fetchall()
    assert sorted(owner.execute("SELECT id FROM holdfast.job").fetchall()) == sorted(made)
    assert len(made) == 4


def test_a_producer_publishes(login: Login, owner: Connection) -> None:
    producer = login("holdfast_producer")
    events = [{"topic": "paid", "payload": {"n": 1}}, {"topic": "paid", "payload": 2, "key": "k"}]
    made = producer.execute("SELECT holdfast.publish_events(%s)", [json.dumps(events)]).fetchall()
    made += producer.execute("SELECT holdfast.publish('paid', '3', key => 'k', headers => '{\"a\": \"b\"}')").fetchall()
    assert owner.execute("SELECT id FROM holdfast.event ORDER BY id").fetchall() == made
    assert len(made) == 3


def test_a_producer_reads_the_state_of_a_job_and_the_result_of_its_chain(login: Login) -> None:
    producer, conn = login("holdfast_producer"), login("holdfast_worker")
    worker = run_sync(conn, register_worker("w", queues=["default"], kinds=["mail"]))
    going_on, failing, waiting = enqueue(conn), enqueue(conn), enqueue(conn, kind="other")
    result = "SELECT * FROM holdfast.get_result(%s)"

    def states(*jobs: int) -> list[tuple[object, ...] | None]:
        return [producer.execute(result, [job]).fetchone() for job in jobs]

    assert states(going_on, 10**9) == [("pending", None), ("not_found", None)]
    claimed = run_sync(conn, claim_jobs(worker, {"default": 10}, {"mail": Lease.standard})).jobs
    tokens = {job.id: job.token for job in claimed}
    held = Held(going_on, tokens[going_on])
    assert states(going_on) == [("processing", None)]
    assert run_sync(conn, complete_job(worker, held, "1", '{"kind": "other"}')) == "completed"
    (failed,) = (job for job in claimed if job.id == failing)
    assert answers(conn, worker, Ending(failed, Failed(Failure("E", "with a secret")))) == ["failed"]
    assert states(going_on, failing, waiting) == [("pending", None), ("failed", None), ("pending", None)]
    assert run_sync(conn, complete_chain(going_on, '{"n": 9007199254740993}')) == "completed"
    assert producer.execute("SELECT result->>'n' FROM holdfast.get_result(%s)", [going_on]).fetchall() == [
        ("9007199254740993",)
    ]


@pytest.mark.parametrize("verb", ["SELECT", *WRITES])
def test_a_producer_touches_no_table(login: Login, owner: Connection, verb: str) -> None:
    every = tables(owner)
    assert {"job", "job_history", "migration", "queue", "worker"} <= every.keys()
    assert not_denied(login("holdfast_producer"), verb, every) == set()


def test_a_producer_calls_nothing_else(login: Login, owner: Connection) -> None:
    producer = login("holdfast_producer")
    others = [function for function in functions(owner) if function.name not in PRODUCING]
    assert {"claim_jobs", "complete_jobs", "ensure_partitions", "wake_sleepers", "wake_readers", "receive"} <= {
        name for name, _ in others
    }
    refused = [denied(producer, call) for _, call in others]
    assert refused == [f"permission denied for function {name}" for name, _ in others]


@pytest.mark.parametrize("role", ["holdfast_producer", "holdfast_viewer"])
def test_producers_and_viewers_draw_no_sequence_numbers(login: Login, owner: Connection, role: str) -> None:
    conn = login(role)
    for sequence in sequences(owner):
        for call in (f"SELECT nextval('holdfast.{sequence}')", f"SELECT setval('holdfast.{sequence}', 1)"):
            assert denied(conn, call) == f"permission denied for sequence {sequence}"


@pytest.mark.parametrize("role", ROLES)
def test_no_role_changes_the_schema(login: Login, role: str) -> None:
    conn = login(role)
    refusals = {
        "CREATE TABLE holdfast.mine ()": "permission denied for schema holdfast",
        "CREATE FUNCTION holdfast.mine() RETURNS int RETURN 1": "permission denied for schema holdfast",
        "DROP TABLE holdfast.job": "must be owner of table job",
        "ALTER TABLE holdfast.job ADD COLUMN mine int": "must be owner of table job",
        "CREATE INDEX ON holdfast.job (kind)": "must be owner of table job",
        "DROP SCHEMA holdfast CASCADE": "must be owner of schema holdfast",
        "DROP FUNCTION holdfast.enqueue": "must be owner of function holdfast.enqueue",
        "TRUNCATE holdfast.job": "permission denied for table job",
    }
    assert {command: denied(conn, command) for command in refusals} == refusals


def test_a_viewer_sees_every_table_but_the_digests_of_tokens(login: Login, owner: Connection) -> None:
    owner.execute("SELECT holdfast.ensure_partitions(20)")  # also those made after the grants
    viewer = login("holdfast_viewer")
    refused = {table: denied(viewer, f"SELECT * FROM holdfast.{table}") for table in tables(owner)}
    assert {table for table, refusal in refused.items() if refusal} == {"access_token"}
    check(viewer)


@pytest.mark.parametrize("verb", WRITES)
def test_a_viewer_writes_no_table(login: Login, owner: Connection, verb: str) -> None:
    assert not_denied(login("holdfast_viewer"), verb, tables(owner)) == set()


def test_a_viewer_calls_only_what_looks(login: Login, owner: Connection) -> None:
    viewer = login("holdfast_viewer")
    run_sync(owner, subscribe("s", target="t", topics=(), partitions=2, beginning=False))
    assert [line.partition for line in run_sync(viewer, list_subscriptions())] == [0, 1]
    run_sync(owner, enqueue_job(NewJob(Envelope("a"), "{}")))
    assert [row and row.status for row in (run_sync(viewer, get_job(job)) for job in (1, 2))] == ["pending", None]
    every = [function for function in functions(owner) if function.name not in LOOKING]
    assert [denied(viewer, call) for _, call in every] == [
        f"permission denied for function {name}" for name, _ in every
    ]


@pytest.mark.parametrize(
    ("verb", "permitted"),
    [
        ("SELECT", f"{LIVE} {HISTORY} {READ} bulk_action dismissal"),
        ("INSERT", f"{LIVE} {HISTORY} archive_exports replay"),
        ("UPDATE", f"{LIVE} archive_exports run"),
        ("DELETE", f"{LIVE} bulk_action dismissal landmark past_census position replay run tally unique_window inbox"),
        ("TRUNCATE", ""),
    ],
)
def test_a_worker_has_what_the_protocol_needs(login: Login, owner: Connection, verb: str, permitted: str) -> None:
    assert not_denied(login("holdfast_worker"), verb, tables(owner)) == set(permitted.split())


@pytest.mark.parametrize(
    ("verb", "permitted"),
    [
        ("INSERT", f"{LIVE} {HISTORY} {PAGES} archive_exports bulk_action dismissal landmark queue replay"),
        ("UPDATE", f"{LIVE} answered archive_exports bulk_action dismissal queue run"),
        ("DELETE", f"{LIVE} {CLEARED} answered ended_session tally unique_window inbox"),
        ("TRUNCATE", ""),
    ],
)
def test_an_operator_has_a_workers_rights_and_those_of_the_pages(
    login: Login, owner: Connection, verb: str, permitted: str
) -> None:
    assert not_denied(login("holdfast_operator"), verb, tables(owner)) == set(permitted.split())


def test_an_operator_sees_all(login: Login, owner: Connection) -> None:
    operator = login("holdfast_operator")
    families = [table for table in tables(owner) if not table[-8:].isdecimal()]
    assert {table for table in families if denied(operator, f"SELECT * FROM holdfast.{table}")} == set()
    check(operator)


def enqueue(conn: Connection, **options: object) -> int:
    return int(one(conn, "SELECT id FROM holdfast.enqueue_jobs(%s)", json.dumps([{"kind": "mail", **options}])))


def test_a_worker_works(login: Login) -> None:
    conn = login("holdfast_worker")
    check(conn)
    assert run_sync(conn, ensure_partitions(16)) > 0
    worker = run_sync(conn, register_worker("w", queues=["default"], kinds=["mail"]))
    enqueue(conn)
    enqueue(conn, max_attempts=1)
    enqueue(conn, order_key="k", order_block=True)
    enqueue(conn, unique_key="u", unique_window_ms=1000)
    claim = claim_jobs(worker, {"default": 10}, {"mail": Lease.standard})
    plain, failing, stopping, repeated = sorted(run_sync(conn, claim).jobs)

    held = {Held(job.id, job.token): Lease.heavy for job in (plain, failing, stopping, repeated)}
    assert run_sync(conn, renew_leases(worker, held)) == {}
    assert answers(conn, worker, Ending(plain, Completed("{}"))) == ["completed"]
    failure = Failure("E", "no")
    endings = [
        Ending(failing, Retried(timedelta(0), failure)),
        Ending(stopping, Failed(failure)),
        Ending(repeated, Retried(timedelta(0), failure)),
    ]
    assert answers(conn, worker, *endings) == ["failed", "failed", "pending"]
    assert run_sync(conn, cancel_job(repeated.id)) == "cancelled"
    assert run_sync(conn, replay_job(stopping.id)) is not None

    assert len(run_sync(conn, claim).jobs) == 1
    conn.execute("UPDATE holdfast.job SET locked_until = now() - interval '1 second'")
    no_delay = {"mail": Retry(base=timedelta(0), jitter=timedelta(0))}
    assert [job.answer for job in run_sync(conn, reap_jobs(no_delay, jitter=timedelta(0))).jobs] == ["pending"]
    assert run_sync(conn, claim).jobs == []
    (again,) = run_sync(conn, claim_suspects(worker, ["default"], {"mail": Lease.standard}))
    assert run_sync(conn, isolate_worker(worker, 1))
    assert run_sync(conn, cancel_job(again.id)) == "requested"


def test_a_worker_ends_and_deletes_chains(login: Login) -> None:
    """A worker may not delete from history; delete_chains does, and nothing else."""
    conn = login("holdfast_worker")
    worker = run_sync(conn, register_worker("w", queues=["default"], kinds=["mail"]))
    first, second = enqueue(conn), enqueue(conn)
    waiter = enqueue(conn, blockers=[first, second])
    claimed = run_sync(conn, claim_jobs(worker, {"default": 10}, {"mail": Lease.standard})).jobs
    held = {Held(job.id, job.token): Progress(0.5, "half") for job in claimed}
    assert run_sync(conn, report_progress(worker, held)) == held.keys()
    run_sync(conn, watch_chains("me", [first, waiter]))
    assert run_sync(conn, complete_job(worker, Held(first, claimed[0].token), "1", '{"kind": "mail"}')) == "completed"
    assert run_sync(conn, complete_chain(first)) == "completed"
    assert run_sync(conn, complete_chain(second)) == "completed"
    assert [job.status for job in run_sync(conn, read_chain(waiter))] == ["pending"]
    assert run_sync(conn, repair_blockers()).rows == 0
    assert run_sync(conn, chain_ends([first, second])).keys() == {first, second}
    assert run_sync(conn, delete_chains([first, second, waiter])) == [first, second, waiter]
    assert one(conn, "SELECT count(*) FROM holdfast.job_history") == 0
    run_sync(conn, forget_watcher("me"))


def answers(conn: Connection, worker: int, *endings: Ending) -> list[object]:
    given = run_sync(conn, finish_jobs(worker, endings))
    return [given.get(Held(ending.claimed.id, ending.claimed.token), "completed") for ending in endings]


def test_rights_that_were_given_in_between_are_taken_back(owner: Connection) -> None:
    owner.execute("GRANT ALL ON ALL TABLES IN SCHEMA holdfast TO holdfast_producer, PUBLIC")
    owner.execute("GRANT EXECUTE ON FUNCTION holdfast.cancel_job TO holdfast_viewer, PUBLIC")
    migrate(owner)
    for role in ("holdfast_producer", "public"):
        assert one(owner, "SELECT has_table_privilege(%s, 'holdfast.job', 'SELECT, INSERT')", role) is False
    assert (
        one(owner, "SELECT has_function_privilege('holdfast_viewer', 'holdfast.cancel_job(bigint)', 'EXECUTE')")
        is False
    )
