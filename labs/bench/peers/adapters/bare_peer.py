"""The bare loop: COPY in; claim 500 with SKIP LOCKED, finish 500 into a history table; no lease is ever renewed."""

from __future__ import annotations

import json

import psycopg
from adapter import contextmanager, main, started

from labs.bench.plain import Plain

_COLUMNS = "created_at, available_at, shard, queue, kind, payload"
_INSERT = (
    "WITH made AS (INSERT INTO plain.job (created_at, available_at, queue, kind, payload)"
    " VALUES (now(), now(), 'default', 'bench.noop', %s) RETURNING id) SELECT pg_notify('plain', '') FROM made"
)
_COPY = f"COPY plain.job ({_COLUMNS}) FROM STDIN"
POLL_SECONDS = 1


def connect(url: str) -> psycopg.Connection:
    conn = psycopg.connect(url, autocommit=True, prepare_threshold=0)
    # As every statement of ours says for itself.
    conn.execute("SET enable_seqscan = off")
    conn.execute("SET jit = off")
    return conn


def prepare(url: str) -> None:
    from holdfast._store.schema import migrate

    with connect(url) as conn:
        migrate(conn)
        Plain(conn).create()


@contextmanager
def produce(url: str):
    with connect(url) as conn:

        def many(jobs: list[dict]) -> None:
            with conn.cursor() as cursor, cursor.copy(_COPY) as into:
                for job in jobs:
                    into.write_row(("now", "now", 7, "default", "bench.noop", json.dumps(job)))

        def one(job: dict) -> None:
            conn.execute(_INSERT, [json.dumps(job)])

        yield one, many


def work(url: str) -> None:
    with connect(url) as conn, connect(url) as listener:
        listener.execute("LISTEN plain")
        plain = Plain(conn)
        while True:
            while rows := plain.claim(500):
                for row in rows:
                    started(json.loads(row[4])["at"])
                plain.finish(rows)
            for _ in listener.notifies(timeout=POLL_SECONDS, stop_after=1):
                pass


main(prepare=prepare, produce=produce, work=work)
