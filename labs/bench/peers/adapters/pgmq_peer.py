"""pgmq: its SQL as its Python client brings it, read 500, handle, delete 500. It has no worker: the loop is ours."""

from __future__ import annotations

from adapter import contextmanager, main, started
from pgmq import PGMQueue
from pgmq.install import get_embedded_install_sql, install_pgmq_sql

QUEUE = "bench"
BATCH = 500
VISIBILITY_SECONDS = 60
POLL_MILLISECONDS = 100


def client(url: str) -> PGMQueue:
    return PGMQueue(conn_string=url, pool_size=2, init_extension=False)


def prepare(url: str) -> None:
    install_pgmq_sql(get_embedded_install_sql(), dsn=url)
    client(url).create_queue(QUEUE)


@contextmanager
def produce(url: str):
    queue = client(url)
    yield (lambda job: queue.send(QUEUE, job)), (lambda jobs: queue.send_batch(QUEUE, jobs))
    queue.close()


def work(url: str) -> None:
    queue = client(url)
    while True:
        found = queue.read_batch(QUEUE, vt=VISIBILITY_SECONDS, batch_size=BATCH)
        if not found:
            found = queue.read_with_poll(
                QUEUE, vt=VISIBILITY_SECONDS, qty=BATCH, max_poll_seconds=5, poll_interval_ms=POLL_MILLISECONDS
            )
        for message in found or []:
            started(message.message["at"])
        if found:
            queue.delete_batch(QUEUE, [message.msg_id for message in found])


main(prepare=prepare, produce=produce, work=work)
