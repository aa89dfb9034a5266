"""Parameters of producers are checked by the SQL functions: the refusal names the parameter, the rule and the value."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from holdfast._drivers import run_sync
from holdfast._model.errors import InvalidEvent, InvalidJob
from holdfast._store.statement import Statement

Connection = psycopg.Connection[Any]

LONG = "repeat('x', 501)"

# Arguments of holdfast.enqueue, and what is said of them.
ENQUEUE = {
    "NULL": "kind: 1 to 200 bytes of text expected, got null",
    "''": "kind: 1 to 200 bytes of text expected, got 0 bytes",
    LONG: "kind: 1 to 200 bytes of text expected, got 501 bytes",
    "'k', queue => ''": "queue: 1 to 100 bytes of text expected, got 0 bytes",
    f"'k', queue => {LONG}": "queue: 1 to 100 bytes of text expected, got 501 bytes",
    "'k', priority => -1": "priority: 0 to 9 expected, got -1",
    "'k', priority => 2000000000": "priority: 0 to 9 expected, got 2000000000",
    "'k', max_attempts => 0": "max_attempts: 1 to 1000, or -1 for no limit, expected, got 0",
    "'k', max_attempts => 1001": "max_attempts: 1 to 1000, or -1 for no limit, expected, got 1001",
    "'k', delay => '-1 second'": "delay: 0 ms to 3660 days expected, got -1000 ms",
    "'k', delay => '100 years'": "delay: 0 ms to 3660 days expected, got 3155760000000 ms",
    "'k', delay => '178000000 years'": "delay: 0 ms to 3660 days expected, got 1000000000000000000 ms",
    "'k', at => 'infinity'": "at: a time from the year 1 to the year 9999 expected, got infinity",
    "'k', at => '-infinity'": "at: a time from the year 1 to the year 9999 expected, got -infinity",
    "'k', at => '10000-01-01Z'": "at: a time from the year 1 to the year 9999 expected, got 10000-01-01",
    "'k', at => now(), delay => '1 s'": "delay, at: one of them expected, got both",
    "'k', expires => '0 s'": "expires: 1 ms to 3660 days expected, got 0 ms",
    "'k', expires => '100 years'": "expires: 1 ms to 3660 days expected, got 3155760000000 ms",
    "'k', expires_at => 'infinity'": "expires_at: a time from the year 1 to the year 9999 expected, got infinity",
    "'k', expires_at => '4000-01-01 BC'": "expires_at: a time from the year 1 to the year 9999 expected",
    "'k', expires_at => now(), expires => '1 s'": "expires, expires_at: one of them expected, got both",
    "'k', order_key => ''": "order_key: 1 to 500 bytes of text expected, got 0 bytes",
    f"'k', order_key => {LONG}": "order_key: 1 to 500 bytes of text expected, got 501 bytes",
    f"'k', unique_key => {LONG}": "unique_key: 1 to 500 bytes of text expected, got 501 bytes",
    "'k', unique_window => '1 hour'": "unique_window: a unique_key beside it expected, got null",
    "'k', unique_key => 'u', unique_window => '32 days'": "unique_window: 1 ms to 31 days expected, got 2764800000 ms",
    "'k', unique_key => 'u', unique_window => '-1 s'": "unique_window: 1 ms to 31 days expected, got -1000 ms",
    "'k', unique_key => 'u', on_conflict => 'ignore'": (
        "on_conflict: keep, replace, debounce or raise expected, got ignore"
    ),
    "'k', on_conflict => 'ignore'": "on_conflict: keep, replace, debounce or raise expected, got ignore",
    "'k', payload_version => 0": "payload_version: 1 to 32767 expected, got 0",
    "'k', payload_version => 40000": "payload_version: 1 to 32767 expected, got 40000",
    "'k', blockers => array_fill(1, ARRAY[10001])": "blockers: at most 10000 chains expected, got 10001",
    "'k', blockers => ARRAY[1, NULL]": "blockers: ids of chains expected, got null",
    "'k', payload => to_json(repeat('x', 17000000))": "payload: at most 16 MiB expected, got 17000002 bytes",
    "'k', '[1]'": "payload: a JSON object expected, got array",
    "'k', '\"text\"', delay => '1 s'": "payload: a JSON object expected, got string",
    "'k', 'null', unique_key => 'u'": "payload: a JSON object expected, got null",
    "'k', headers => '[1]'": "headers: a JSON object expected, got an array",
    "'k', headers => '\"x\"'": "headers: a JSON object expected, got a string",
    "'k', headers => '7'": "headers: a JSON object expected, got a number",
    "'k', headers => 'null'": "headers: a JSON object expected, got a null",
    "'k', headers => '{\"traceparent\": 7}'": 'headers: text expected as the value of "traceparent", got number',
    "'k', headers => '{\"a\": {\"b\": 1}}'": 'headers: text expected as the value of "a", got object',
    "'k', headers => '{\"a\": \"\\u0000\"}'": "headers: text that is valid Unicode without NUL characters expected",
    "'k', headers => '{\"a\": \"\\ud800\"}'": "headers: text that is valid Unicode without NUL characters expected",
    '\'k\', headers => \'{"traceparent": "0", "a": 7}\'': 'headers: text expected as the value of "a", got number',
    "'k', headers => json_build_object('traceparent', repeat('0', 70000))": "headers: at most 65536 bytes expected",
    "'k', headers => json_build_object('a', repeat('x', 70000))": "headers: at most 65536 bytes expected, got 70",
}

# Members of a job in the array of holdfast.enqueue_jobs.
JOBS: list[tuple[dict[str, Any], str]] = [
    ({}, "kind: 1 to 200 bytes of text expected, got null"),
    ({"kind": ""}, "kind: 1 to 200 bytes of text expected, got 0 bytes"),
    ({"kind": "k", "priority": 70_000}, "priority: 0 to 9 expected, got 70000"),
    ({"kind": "k", "max_attempts": 70_000}, "max_attempts: 1 to 1000, or -1 for no limit, expected, got 70000"),
    ({"kind": "k", "payload_version": -1}, "payload_version: 1 to 32767 expected, got -1"),
    ({"kind": "k", "delay_ms": -5}, "delay: 0 ms to 3660 days expected, got -5 ms"),
    ({"kind": "k", "delay_ms": 9 * 10**18}, "delay: 0 ms to 3660 days expected, got 9000000000000000000 ms"),
    ({"kind": "k", "at": "infinity"}, "at: a time from the year 1 to the year 9999 expected, got infinity"),
    ({"kind": "k", "expires_ms": 0}, "expires: 1 ms to 3660 days expected, got 0 ms"),
    ({"kind": "k", "payload": 7}, "payload: a JSON object expected, got number"),
    ({"kind": "k", "payload": "x", "unique_key": "u"}, "payload: a JSON object expected, got string"),
    ({"kind": "k", "que": "mail"}, "jobs: a job has no option que: expected are kind, payload, queue, priority, "),
    ({"kind": "k", "uniquekey": "u", "unique_key": "u"}, "jobs: a job has no option uniquekey: expected are kind, "),
    ({"kind": "k", "headers": [1]}, "headers: a JSON object expected, got an array"),
    ({"kind": "k", "headers": {"a": 1}}, 'headers: text expected as the value of "a", got number'),
    ({"kind": "k", "unique_key": ""}, "unique_key: 1 to 500 bytes of text expected, got 0 bytes"),
    ({"kind": "k", "unique_key": "u", "at": "infinity"}, "at: a time from the year 1 to the year 9999 expected"),
    ({"kind": "k", "unique_key": "u", "on_conflict": "x"}, "on_conflict: keep, replace, debounce or raise expected"),
    ({"kind": "k", "blockers": [None]}, "blockers: ids of chains expected, got null"),
]

PUBLISH = {
    "NULL, '{}'": "topic: 1 to 200 bytes of text expected, got null",
    "'', '{}'": "topic: 1 to 200 bytes of text expected, got 0 bytes",
    "'t', NULL": "payload: JSON expected, got null",
    "'t', to_json(repeat('x', 17000000))": "payload: at most 16 MiB expected, got 17000002 bytes",
    "'t', '{}', key => ''": "key: 1 to 500 bytes of text expected, got 0 bytes",
    "'t', '{}', version => 0": "version: 1 to 32767 expected, got 0",
    "'t', '{}', version => 40000": "version: 1 to 32767 expected, got 40000",
    "'t', '{}', trace => repeat('x', 201)": "trace: at most 200 bytes of text expected, got 201 bytes",
    "'t', '{}', headers => '[]'": "headers: a JSON object expected, got an array",
    "'t', '{}', headers => '{\"a\": null}'": 'headers: text expected as the value of "a", got null',
}

CALLS: dict[str, tuple[type[Exception], str]] = {
    "enqueue_jobs(NULL)": (InvalidJob, "jobs: the text of a JSON array expected, got null"),
    "enqueue_jobs('{}')": (InvalidJob, "jobs: the text of a JSON array expected, got something else"),
    "enqueue_group('[]', NULL, false)": (InvalidJob, "last: the text of a JSON object expected, got null"),
    "enqueue_group('[]', '{\"kind\": \"\"}', false)": (
        InvalidJob,
        "kind: 1 to 200 bytes of text expected, got 0 bytes",
    ),
    'enqueue_group(\'[{"kind": "k", "x": 1}]\', \'{"kind": "k"}\', false)': (InvalidJob, "jobs: a job has no option x"),
    'enqueue_group(\'[]\', \'{"kind": "k", "x": 1}\', false)': (InvalidJob, "jobs: a job has no option x"),
    "publish_events(NULL)": (InvalidEvent, "events: the text of a JSON array expected, got null"),
    "publish_events('{}')": (InvalidEvent, "events: the text of a JSON array expected, got something else"),
    "publish_events('[{\"payload\": 1}]')": (InvalidEvent, "topic: 1 to 200 bytes of text expected, got null"),
    'publish_events(\'[{"topic": "t", "payload": 1, "version": 99999}]\')': (InvalidEvent, "version: 1 to 32767"),
    "receive(NULL, 'm')": (InvalidEvent, "consumer, message_id: text expected, got null"),
    "receive('', 'm')": (InvalidEvent, "consumer: 1 to 200 bytes of text expected, got 0 bytes"),
    f"receive('c', {LONG})": (InvalidEvent, "message_id: 1 to 500 bytes of text expected, got 501 bytes"),
    "send_message(NULL, 'm', '1')": (InvalidJob, "chain: an id expected, got null"),
    "send_message(NULL, 'm', '1', kind => 'k')": (InvalidJob, "chain: an id expected, got null"),
    "send_message(1, NULL, '1')": (InvalidJob, "name: 1 to 200 bytes of text expected, got null"),
    "send_message(1, 'm', NULL)": (InvalidJob, "payload: JSON expected, got null"),
    "send_message(1, 'm', to_json(repeat('x', 17000000)))": (
        InvalidJob,
        "payload: at most 16 MiB expected, got 17000002 bytes",
    ),
    f"send_message(1, 'm', '1', {LONG})": (InvalidJob, "key: 1 to 500 bytes of text expected, got 501 bytes"),
    f"send_message(NULL, 'm', '1', kind => {LONG}, unique_key => 'u')": (
        InvalidJob,
        "kind: 1 to 200 bytes of text expected, got 501 bytes",
    ),
    "send_message(NULL, 'm', '1', kind => 'k', unique_key => '')": (
        InvalidJob,
        "unique_key: 1 to 500 bytes of text expected, got 0 bytes",
    ),
}


def refused(conn: Connection, call: str, error: type[Exception], rule: str) -> None:
    with pytest.raises(error) as caught:
        run_sync(conn, Statement(f"SELECT holdfast.{call}".replace("%", "%%"), {}, len))
    assert str(caught.value).startswith(rule)
    for table in ("job", "event", "inbox", "unique_window"):
        assert conn.execute(f"SELECT count(*) FROM holdfast.{table}".encode()).fetchone() == (0,)


def test_what_enqueue_refuses(conn: Connection) -> None:
    for arguments, rule in ENQUEUE.items():
        refused(conn, f"enqueue({arguments})", InvalidJob, rule)


def test_what_enqueue_jobs_refuses(conn: Connection) -> None:
    for job, rule in JOBS:
        text = json.dumps([{"kind": "fine"}, job]).replace("'", "''")
        refused(conn, f"enqueue_jobs('{text}')", InvalidJob, rule)
        if job.keys() <= {"kind", "payload", "queue", "priority", "max_attempts", "headers"}:
            refused(conn, f"enqueue_jobs('{text}', true)", InvalidJob, rule)


def test_what_publish_refuses(conn: Connection) -> None:
    for arguments, rule in PUBLISH.items():
        refused(conn, f"publish({arguments})", InvalidEvent, rule)


def test_what_other_doors_refuse(conn: Connection) -> None:
    for call, (error, rule) in CALLS.items():
        refused(conn, call, error, rule)


def test_what_is_within_the_bounds_is_taken(conn: Connection) -> None:
    for arguments in (
        "'k'",
        "repeat('k', 200), NULL, NULL, NULL, NULL",
        "'k', priority => 0, max_attempts => 1000, delay => '3660 days', payload_version => 32767",
        "'k', at => '9999-12-31Z', expires => '1 ms'",
        "'k', at => '0001-01-01Z'",
        '\'k\', headers => \'{"a": "\\u00e9 \\ud83d\\ude00", "b": ""}\'',
        "'k', headers => '{}'",
        "'k', unique_key => repeat('u', 500), unique_window => '31 days', on_conflict => 'raise'",
    ):
        conn.execute(f"SELECT holdfast.enqueue({arguments})".encode())
    conn.execute("SELECT holdfast.publish('t', 'null', NULL, '{\"a\": \"b\"}', NULL, NULL)")
    assert conn.execute("SELECT count(*) FROM holdfast.job").fetchone() == (8,)


def test_no_way_in_leads_to_a_job_that_is_never_due(conn: Connection) -> None:
    """Not even that of a chain that goes on, whose next job is not checked at the door."""
    conn.execute("SELECT holdfast.enqueue('k')")
    with pytest.raises(psycopg.errors.CheckViolation, match="job_available_at_check"):
        conn.execute("UPDATE holdfast.job SET available_at = 'infinity'")


# Arguments that are fine, of every function that producers, operators or handlers call: the functions on which people's
# input arrives. Each argument is then replaced by whatever is wrong for its type.
DOORS: dict[str, dict[str, str]] = {
    "enqueue": {"kind": "'k'"},
    "enqueue_jobs": {"jobs": "'[]'"},
    "enqueue_group": {"jobs": "'[]'", "last": '\'{"kind": "k"}\'', "run_anyway": "false"},
    "publish": {"topic": "'t'", "payload": "'{}'"},
    "publish_events": {"events": "'[]'"},
    "receive": {"consumer": "'c'", "message_id": "'m'"},
    "send_message": {"chain": "1", "name": "'m'", "payload": "'1'"},
    "complete_job": {"job_id": "1", "token": "1", "worker": "1"},
    "complete_chain": {"chain": "1"},
    "get_result": {"job_id": "1"},
    "set_weight": {"tenant": "'t'", "weight": "1"},
    "cancel_job": {"job_id": "1"},
    "delete_job": {"job_id": "1"},
    "delete_chains": {"chains": "'{1}'"},
    "replay_job": {"job_id": "1"},
    "reschedule_job": {"job_id": "1", "due": "now()"},
    "act_on_jobs": {"action": "'cancel'", "ids": "'{1}'", "ended": "NULL", "due": "NULL"},
    "resume_order_key": {"key": "'k'"},
    "replay_subscription": {"subscription": "1", "since": "now()", "after": "NULL"},
    "repartition_subscription": {"subscription": "1", "parts": "2"},
    "rebase_subscription": {"subscription": "1"},
}

NEVER: dict[str, list[str]] = {
    "text": ["NULL", "''", "repeat('x', 70000)"],
    "bigint": ["NULL"],
    "integer": ["NULL"],
    "smallint": ["NULL"],
    "timestamp with time zone": ["NULL", "'infinity'", "'-infinity'"],
    "interval": ["'178000000 years'", "'-1 year'"],
    "bigint[]": ["NULL", "'{1,NULL}'", "array_fill(1::bigint, ARRAY[10001])"],
    "timestamp with time zone[]": ["ARRAY[now(), now()]"],
    "json": ["'[1]'", "'7'", "to_json(repeat('x', 17000000))"],
    "boolean": [],
    "real": [],
    "uuid": ["NULL"],
    "uuid[]": ["NULL", "ARRAY[NULL]::uuid[]", "array_fill(gen_random_uuid(), ARRAY[10001])"],
    "text[]": ["ARRAY[NULL]::text[]", "array_fill('x'::text, ARRAY[1001])"],
}

# Any JSON is fine here; the size of a result is not bounded, no more than that of one that a handler returns.
ANY_JSON = {
    ("publish", "payload"),
    ("send_message", "payload"),
    ("complete_job", "result"),
    ("complete_chain", "result"),
}
# Left out, these mean something: all that was published, every day that is kept, nothing to pair with an id.
MAY_BE_NULL = {("replay_subscription", "since"), ("replay_subscription", "after"), ("act_on_jobs", "due")}

CATALOGUE = """
SELECT p.proname::text, a.name, format_type(a.type, NULL), a.place > p.pronargs - p.pronargdefaults
FROM pg_proc p, unnest(p.proargnames[:p.pronargs], p.proargtypes::oid[]) WITH ORDINALITY AS a (name, type, place)
WHERE p.pronamespace = 'holdfast'::regnamespace ORDER BY p.proname, a.place
"""

GRANTED = """
SELECT p.proname::text FROM pg_proc p WHERE p.pronamespace = 'holdfast'::regnamespace
    AND (has_function_privilege('holdfast_producer', p.oid, 'EXECUTE')
        OR has_function_privilege('holdfast_operator', p.oid, 'EXECUTE')
            AND NOT has_function_privilege('holdfast_worker', p.oid, 'EXECUTE'))
"""


def test_every_parameter_of_every_function_is_checked(conn: Connection) -> None:
    """From the catalogue: all that are granted to producers, or to operators and not to workers, are above."""
    rows = conn.execute(CATALOGUE).fetchall()
    granted = {name for (name,) in conn.execute(GRANTED)}
    assert {"enqueue", "publish", "reschedule_job"} <= granted <= DOORS.keys() <= {name for name, *_ in rows}
    tried, unchecked = 0, []
    for function, parameter, kind, optional in rows:
        if function not in DOORS:
            continue
        for value in NEVER[kind]:
            if value == "NULL" and (optional or (function, parameter) in MAY_BE_NULL):
                continue
            if kind == "json" and (function, parameter) in ANY_JSON:
                continue
            if (function, parameter, value) == ("publish", "trace", "''"):
                continue  # as good as none
            arguments = DOORS[function] | {parameter: value}
            call = ", ".join(f"{name} => {given}" for name, given in arguments.items())
            answer = answered(conn, f"SELECT holdfast.{function}({call})")
            tried += 1
            if answer[0] not in {"HF002", "HF005"} or parameter not in answer[1]:
                unchecked.append((function, parameter, value[:40], *answer))
    assert unchecked == []
    assert tried > 80


def answered(conn: Connection, call: str) -> tuple[str | None, str]:
    try:
        with conn.transaction(force_rollback=True):
            conn.execute(call.encode())
    except psycopg.Error as exc:
        return exc.sqlstate, str(exc)
    return None, "taken"
