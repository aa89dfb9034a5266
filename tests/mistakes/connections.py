"""Mistakes in enqueueing, publishing and waiting on connections."""

from __future__ import annotations

from tests.mistakes.mistake import Area, Mistake

ENQUEUEING = Area(
    "Enqueueing",
    "Raised by `app.enqueue` and its relatives.",
    (
        Mistake(
            "The kind in place of a job",
            "await app.enqueue(conn, mail)",
            "TypeError: app.enqueue: mail is a Kind, not a job: call its .new(…) and give what it returns",
        ),
        Mistake(
            "The handler is called in place of `new`",
            """
            @app.job("send")
            async def send(job: Job[None], number: int = 1) -> None: ...


            await app.enqueue(conn, send(1))
            """,
            "TypeError: app.enqueue: send(…) calls the handler: write send.new(…), which makes a job",
        ),
        Mistake(
            "A name in place of a job",
            'await app.enqueue(conn, "mail")',
            "TypeError: app.enqueue: expected a job, got str: make one with a kind's .new(…)",
        ),
        Mistake(
            "The arguments are swapped",
            'await app.enqueue(mail.new("a@b.c"), conn)',
            "TypeError: app.enqueue: expected a job, got AsyncConnection: the connection comes first, then the job",
        ),
        Mistake(
            "The connection is left out",
            'await app.enqueue(mail.new("a@b.c"))',
            "TypeError: app.enqueue: the argument job is missing: write app.enqueue(conn, job)",
        ),
        Mistake(
            "The handler's arguments are passed to enqueue",
            'await app.enqueue(conn, mail, "a@b.c")',
            "TypeError: app.enqueue: 3 arguments by position, and it takes 2: write app.enqueue(conn, job)",
        ),
        Mistake(
            "An option is passed to enqueue",
            'await app.enqueue(conn, mail.new("a@b.c"), delay=60)',
            "TypeError: app.enqueue: there is no parameter delay: it is an option of the job: write job.options(…)",
        ),
        Mistake(
            "An event is enqueued",
            "await app.enqueue(conn, paid.new(Order(id=7)))",
            "TypeError: app.enqueue: this is an event: use app.publish(conn, event)",
        ),
        Mistake(
            "One job in place of a list",
            'await app.enqueue_many(conn, mail.new("a@b.c"))',
            "TypeError: app.enqueue_many: one job is given where a list is expected: write [job], or call app.enqueue",
        ),
        Mistake(
            "A group without its last job",
            'await app.enqueue_group(conn, [mail.new("a@b.c")])',
            "TypeError: app.enqueue_group: the argument then is missing: write app.enqueue_group(conn, jobs, then=…)",
        ),
        Mistake(
            "A method is misspelled",
            'app.enqeue(conn, mail.new("a@b.c"))',
            "AttributeError: app.enqeue: there is no such method: did you mean enqueue?",
        ),
        Mistake(
            "A method that does not exist",
            'app.enqueue_sync(sync_conn, mail.new("a@b.c"))',
            "AttributeError: app.enqueue_sync: there is no such method: write app.sync.enqueue(…)",
        ),
    ),
)

CONNECTIONS = Area(
    "Connections",
    "Raised by every method that takes a connection.",
    (
        Mistake(
            "A sync connection for an async method",
            'await app.enqueue(sync_conn, mail.new("a@b.c"))',
            "UnsupportedConnection: conn: psycopg.Connection given where a psycopg.AsyncConnection is needed: use the same verb of .sync, as in app.sync.enqueue(conn, job)",
        ),
        Mistake(
            "An async connection for a sync method",
            'app.sync.enqueue(conn, mail.new("a@b.c"))',
            "UnsupportedConnection: conn: psycopg.AsyncConnection given where a psycopg.Connection is needed: use the same verb without .sync, and await it, as in await app.enqueue(conn, job)",
        ),
        Mistake(
            "An address in place of a connection",
            'await app.enqueue("postgresql://127.0.0.1/shop", mail.new("a@b.c"))',
            "UnsupportedConnection: conn: expected an open connection of psycopg 3, asyncpg, SQLAlchemy or Django, got str: open one with psycopg.connect(address), and give that",
        ),
        Mistake(
            "No connection",
            'await app.enqueue(None, mail.new("a@b.c"))',
            "UnsupportedConnection: conn: expected an open connection of psycopg 3, asyncpg, SQLAlchemy or Django, got None: open one, and give that",
        ),
        Mistake(
            "A connection that is not awaited",
            'await app.enqueue(psycopg.AsyncConnection.connect("postgresql://127.0.0.1/shop"), mail.new("a@b.c"))',
            "UnsupportedConnection: conn: expected an open connection of psycopg 3, asyncpg, SQLAlchemy or Django, got coroutine: await it first",
        ),
        Mistake(
            "A cursor in place of a connection",
            'await app.enqueue(conn.cursor(), mail.new("a@b.c"))',
            "UnsupportedConnection: conn: psycopg.AsyncCursor given where a psycopg.AsyncConnection is needed: give the connection itself",
        ),
        Mistake(
            "A connection of another database",
            """
            import sqlite3

            app.sync.enqueue(sqlite3.connect(":memory:"), mail.new("a@b.c"))
            """,
            "UnsupportedConnection: conn: expected an open connection of psycopg 3, asyncpg, SQLAlchemy or Django, got sqlite3.Connection",
        ),
        Mistake(
            "A pool in place of a connection",
            """
            from psycopg_pool import AsyncConnectionPool

            await app.enqueue(AsyncConnectionPool("postgresql://127.0.0.1/shop", open=False), mail.new("a@b.c"))
            """,
            "UnsupportedConnection: conn: AsyncConnectionPool is a pool: take a connection from it, as in `async with pool.connection() as conn`, and give conn",
        ),
        Mistake(
            "A SQLAlchemy engine in place of a session",
            """
            from sqlalchemy.ext.asyncio import create_async_engine

            await app.enqueue(create_async_engine("postgresql+psycopg://127.0.0.1/shop"), mail.new("a@b.c"))
            """,
            "UnsupportedConnection: conn: SQLAlchemy's AsyncEngine given where an AsyncSession or AsyncConnection is needed: open one, and give that",
        ),
        Mistake(
            "A connection in autocommit mode",
            """
            await conn.set_autocommit(True)
            await app.enqueue(conn, mail.new("a@b.c"))
            """,
            'AutocommitWarning: this connection commits by itself, so what you enqueue or publish on it does not commit with your data: write `async with conn.transaction():`, and use the connection inside. To silence this: warnings.filterwarnings("ignore", category=holdfast.AutocommitWarning)',
        ),
        Mistake(
            "A connection to another database",
            """
            from sqlalchemy import create_engine

            with create_engine("sqlite://").connect() as sqlite:
                app.sync.enqueue(sqlite, mail.new("a@b.c"))
            """,
            "UnsupportedConnection: conn: this connection is to sqlite, and Holdfast needs PostgreSQL: give one to its database",
        ),
        Mistake(
            "A sync verb of the test kit on an async connection",
            """
            from holdfast.testing import Testing

            Testing(app, conn).sync.drain()
            """,
            "UnsupportedConnection: conn: psycopg.AsyncConnection given where a psycopg.Connection is needed: write await holdfast.drain(…)",
        ),
        Mistake(
            "An async verb of the test kit on a sync connection",
            """
            from holdfast.testing import Testing

            await Testing(app, sync_conn).assert_enqueued(mail.new("a@b.c"))
            """,
            "UnsupportedConnection: conn: psycopg.Connection given where a psycopg.AsyncConnection is needed: write holdfast.sync.assert_enqueued(…), without await",
        ),
        Mistake(
            "A kind in a verb of the test kit that takes a job",
            """
            from holdfast.testing import Testing

            await Testing(app, conn).assert_enqueued(mail)
            """,
            "TypeError: assert_enqueued: mail is a Kind, not a job: call its .new(…) and give what it returns",
        ),
        Mistake(
            "A name in a verb of the test kit that takes a kind",
            """
            from holdfast.testing import Testing

            await Testing(app, conn).enqueued("mail")
            """,
            "TypeError: enqueued: expected a kind, as @app.job and app.declare return it, got str",
        ),
        Mistake(
            "Migrating by an address",
            'migrate("postgresql://127.0.0.1/shop")',
            "UnsupportedConnection: migrate: expected a psycopg.Connection, got str: give psycopg.connect(url)",
        ),
        Mistake(
            "Migrating on an async connection",
            "migrate(conn)",
            "UnsupportedConnection: migrate: expected a psycopg.Connection, got AsyncConnection: give psycopg.connect(url)",
        ),
    ),
)

WAITING = Area(
    "Waiting and chains",
    "Raised by `app.wait` and the methods for chains.",
    (
        Mistake(
            "A wait for a job without a worker",
            """
            handle = await app.enqueue(conn, mail.new("a@b.c"))
            await conn.commit()
            await app.wait(handle, timeout=0.2)
            """,
            "TimeoutError: chain … has not ended within 0.2 s: its job … (mail, queue mail) has no live worker that serves it: start one with `holdfast worker APP --queues mail=10`",
        ),
        Mistake(
            "A wait for a job whose payload no longer fits its handler",
            """
            handle = await app.enqueue(conn, mail.new("a@b.c"))
            await conn.commit()
            renamed = Holdfast(app.url)


            @renamed.job("mail", queue="mail")
            async def mail(job: Job[None], address: str) -> None: ...


            async with renamed.worker():
                await renamed.wait(handle.id, timeout=3)
            """,
            "TimeoutError: chain … has not ended within 3 s: its job … (mail, queue mail) waits to be tried again after InvalidJob: mail: address: Field required; …: correct that, or wait longer, with timeout=…",
        ),
        Mistake(
            "A wait before the commit",
            """
            handle = await app.enqueue(conn, mail.new("a@b.c"))
            await app.wait(handle, timeout=2)
            """,
            "ChainFailed: chain … not_found (it was never committed, was deleted, or ended too long ago: call wait after your commit)",
        ),
        Mistake(
            "A sync wait in an event loop",
            "app.sync.wait(7)",
            "HoldfastError: app.sync.wait would block the event loop of this thread: write await app.wait(…), or call it in a thread, as asyncio.to_thread does",
        ),
        Mistake(
            "A sync wake-up in an event loop",
            'app.sync.wake("mail")',
            "HoldfastError: app.sync.wake would block the event loop of this thread: write await app.wake(…), or call it in a thread, as asyncio.to_thread does",
        ),
        Mistake(
            "The timeout by position",
            "await app.wait(7, 5)",
            "TypeError: app.wait: 2 arguments by position, and it takes 1: write app.wait(chain, timeout=…, url=…)",
        ),
        Mistake(
            "A timeout of nothing",
            "await app.wait(7, timeout=0)",
            "ValueError: timeout: expected seconds or a timedelta, from more than 0 to 1 day, like 30 or timedelta(minutes=5), got 0 s",
        ),
        Mistake(
            "A timeout as text",
            'await app.wait(7, timeout="5s")',
            "TypeError: timeout: expected seconds or a timedelta, from more than 0 to 1 day, like 30 or timedelta(minutes=5), got str",
        ),
        Mistake(
            "An id as text",
            'await app.wait("7")',
            "TypeError: chain: expected a handle or an id, which is a whole number, got str",
        ),
        Mistake(
            "A job that is not enqueued",
            'await app.wait(mail.new("a@b.c"))',
            "TypeError: mail: this job has no id yet: enqueue it, and give the handle that enqueue returned",
        ),
        Mistake(
            "Looking up a job by text",
            'await app.get_job(conn, "7")',
            "TypeError: job: expected a handle or an id, which is a whole number, got str",
        ),
        Mistake(
            "Cancelling by text",
            'await app.cancel(conn, "7")',
            "TypeError: job: expected a handle or an id, which is a whole number, got str",
        ),
        Mistake(
            "Cancelling without a connection",
            "await app.cancel(7)",
            "TypeError: app.cancel: the argument job is missing: write app.cancel(conn, job)",
        ),
        Mistake(
            "One chain in place of a list",
            "await app.delete_chains(conn, 7)",
            "TypeError: app.delete_chains: expected a list of handles or ids, such as [handle], got int",
        ),
        Mistake(
            "A status that does not exist",
            'await app.list_chains(conn, status="done")',
            "ValueError: status: expected one of blocked, pending, processing, completed, failed, cancelled, got 'done'",
        ),
        Mistake(
            "Too many chains in a list",
            "await app.list_chains(conn, limit=5000)",
            "ValueError: limit: expected a number from 1 to 1000, got 5000",
        ),
        Mistake(
            "A result that is not JSON",
            "await app.complete_chain(conn, 7, object())",
            "InvalidJob: chain 7: a value is not JSON-serializable (Object of type object is not JSON serializable): give text, numbers, lists and dicts, or annotate its type",
        ),
        Mistake(
            "An order key that is a number in a method",
            "await app.resume_order_key(conn, 7)",
            'InvalidJob: order_key: expected text, such as order_key="customer-7", got int',
        ),
    ),
)
