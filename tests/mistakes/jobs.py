"""Mistakes in making jobs and in their options."""

from __future__ import annotations

from tests.mistakes.mistake import Area, Mistake

JOBS = Area(
    "Making jobs",
    "Raised by the kind's `new`, before anything is sent to the database.",
    (
        Mistake(
            "An argument is missing",
            "mail.new()",
            "InvalidJob: mail: the argument to is missing: write mail.new(to, copies=…)",
        ),
        Mistake(
            "An argument of the wrong type",
            'mail.new(to=["a@b.c"])',
            "InvalidJob: mail: to: Input should be a valid string",
        ),
        Mistake(
            "An argument is misspelled",
            'mail.new(to="a@b.c", copy=2)',
            "InvalidJob: mail: the handler has no parameter copy: did you mean copies?",
        ),
        Mistake(
            "Too many arguments",
            'mail.new("a@b.c", 2, 3)',
            "InvalidJob: mail: 3 arguments by position, and it takes 2: write mail.new(to, copies=…)",
        ),
        Mistake(
            "An argument is given twice",
            'mail.new("a@b.c", to="b@b.c")',
            "InvalidJob: mail: to given twice: write mail.new(to, copies=…)",
        ),
        Mistake(
            "An option among the arguments",
            'mail.new("a@b.c", delay=60)',
            "InvalidJob: mail: the handler has no parameter delay: it is an option of the job: write mail.new(to, copies=…).options(delay=…)",
        ),
        Mistake(
            "The handler is called",
            'mail("a@b.c")',
            "TypeError: mail: calling a kind runs its handler, and the arguments do not fit. To make a job, write mail.new(to, copies=…)",
        ),
        Mistake(
            "A method of another library",
            'mail.delay("a@b.c")',
            "AttributeError: the kind mail has no delay: to enqueue a job, write app.enqueue(conn, mail.new(to, copies=…))",
        ),
        Mistake(
            "A payload that is too large",
            'mail.new("x" * 300_000)',
            "PayloadTooLarge: mail: 300020 bytes of JSON, and the limit is 262144: store the data elsewhere and pass its key, or give Holdfast a codec with a higher max_bytes",
        ),
        Mistake(
            "A number that JSON does not have",
            """
            @app.job("measure")
            async def measure(job: Job[None], reading: dict) -> None: ...


            measure.new({"volts": float("nan")})
            """,
            "InvalidJob: measure: reading.volts is NaN, which JSON does not have: pass None or a string instead",
        ),
        Mistake(
            "An object that JSON does not have",
            """
            @app.job("report")
            async def report(job: Job[None], source) -> None: ...


            report.new({"read_from": conn})
            """,
            "InvalidJob: report: source.read_from is of type AsyncConnection, which is not JSON-serializable: pass its id or plain values, or annotate a type that pydantic knows",
        ),
        Mistake(
            "A set without a type",
            """
            @app.job("tag")
            async def tag(job: Job[None], names) -> None: ...


            tag.new({"new", "paid"})
            """,
            "InvalidJob: tag: names is a set, which JSON does not have: pass a list, or annotate it, such as set[int]",
        ),
        Mistake(
            "A handle for an id as text",
            'mail.handle("7")',
            "TypeError: mail.handle: expected the id of a job, which is a whole number, got str",
        ),
        Mistake(
            "A secret that would be stored as asterisks",
            """
            from pydantic import SecretStr


            @app.job("login")
            async def login(job: Job[None], password: SecretStr) -> None: ...


            login.new(SecretStr("hush"))
            """,
            "InvalidJob: login: a SecretStr or SecretBytes is stored as asterisks: declare it as str or bytes, and let a codec encrypt it",
        ),
    ),
)

OPTIONS = Area(
    "Options of jobs",
    "Raised by `options` and by the values that it takes.",
    (
        Mistake(
            "A delay as text",
            'mail.new("a@b.c").options(delay="5 minutes")',
            "InvalidJob: delay: expected seconds or a timedelta, from 0 to 3660 days, like 30 or timedelta(minutes=5), got str",
        ),
        Mistake(
            "A delay into the past",
            'mail.new("a@b.c").options(delay=timedelta(seconds=-5))',
            "InvalidJob: delay: expected seconds or a timedelta, from 0 to 3660 days, like 30 or timedelta(minutes=5), got -5 s",
        ),
        Mistake(
            "A datetime without a time zone",
            'mail.new("a@b.c").options(at=datetime(2030, 1, 1, 9))',
            "InvalidJob: at: the datetime has no time zone: write at=datetime.now(UTC) + timedelta(hours=1), or give it tzinfo=UTC",
        ),
        Mistake(
            "A time as text",
            'mail.new("a@b.c").options(at="2030-01-01")',
            "InvalidJob: at: expected datetime, such as at=datetime.now(UTC) + timedelta(hours=1), got str",
        ),
        Mistake(
            "Both a delay and a time",
            'mail.new("a@b.c").options(delay=60, at=datetime(2030, 1, 1, tzinfo=UTC))',
            "InvalidJob: delay, at: both say when the job is due: give one of them",
        ),
        Mistake(
            "An option is misspelled",
            'mail.new("a@b.c").options(prioritty=1)',
            "TypeError: options: there is no parameter prioritty: did you mean priority?",
        ),
        Mistake(
            "An option by position",
            'mail.new("a@b.c").options(60)',
            "TypeError: options: 1 argument by position, and it takes 0: write options(delay=…, at=…, priority=…, queue=…, order_key=…, unique=…, expires=…, headers=…, max_attempts=…, after=…, if_blocker_fails=…)",
        ),
        Mistake(
            "Unique without a key",
            'mail.new("a@b.c").options(unique=True)',
            'InvalidJob: unique: expected Unique, such as unique="invoice-7", got bool',
        ),
        Mistake(
            "A conflict that does not exist",
            'Unique("order-7", on_conflict="ignore")',
            "InvalidJob: on_conflict: expected one of keep, replace, debounce, raise, got 'ignore'",
        ),
        Mistake(
            "An order key that is a number",
            'mail.new("a@b.c").options(order_key=7)',
            'InvalidJob: order_key: expected OrderKey, such as order_key="customer-7", got int',
        ),
        Mistake(
            "Headers that are not text",
            'mail.new("a@b.c").options(headers={"tenant": 7})',
            "InvalidJob: headers: expected text without NUL characters as the value of tenant, got int",
        ),
        Mistake(
            "After one handle, not a list",
            'mail.new("a@b.c").options(after=7)',
            "InvalidJob: after: expected a list of handles or ids, such as after=[handle], got int",
        ),
        Mistake(
            "After a job that is not enqueued",
            'mail.new("a@b.c").options(after=[mail.new("b@b.c")])',
            "InvalidJob: after: a job that is not enqueued yet has no id: enqueue it first, and give its handle",
        ),
        Mistake(
            "A job that expires before it is due",
            'mail.new("a@b.c").options(delay=timedelta(hours=2), expires=timedelta(hours=1))',
            "InvalidJob: expires: the job would expire before it is due: give a later time",
        ),
        Mistake(
            "An expiry that has passed",
            'mail.new("a@b.c").options(expires=datetime(2020, 1, 1, tzinfo=UTC))',
            "InvalidJob: expires: 2020-01-01T00:00:00+00:00 has passed: such a job would never start. Give a later time",
        ),
        Mistake(
            "No attempts",
            'mail.new("a@b.c").options(max_attempts=0)',
            "InvalidJob: max_attempts: expected a whole number from 1 to 1000, got 0",
        ),
    ),
)

VALUES = Area(
    "Retries, leases and outcomes",
    "Raised where the value is made.",
    (
        Mistake(
            "The delay between attempts as text",
            'Retry(base="5s")',
            "TypeError: base: expected seconds or a timedelta, from 0 to 366 days, like 30 or timedelta(minutes=5), got str",
        ),
        Mistake(
            "A policy's keyword of another library",
            "Retry(max_retries=3)",
            "TypeError: Retry: there is no parameter max_retries: did you mean max_attempts?",
        ),
        Mistake(
            "No attempts in a policy",
            "Retry(0)",
            "ValueError: max_attempts: expected a whole number from 1 to 1000, or None, got 0",
        ),
        Mistake(
            "A factor that shortens the delay",
            "Retry(factor=0.5)",
            "ValueError: factor: expected a finite number, at least 1, got 0.5",
        ),
        Mistake(
            "A factor as text",
            'Retry(factor="2")',
            "ValueError: factor: expected a finite number, at least 1, got '2'",
        ),
        Mistake(
            "A first delay above the longest",
            "Retry(base=100, maximum=10)",
            "ValueError: base, maximum: the first delay, 100 s, is longer than the longest, 10 s: correct one",
        ),
        Mistake(
            "A table without delays",
            "Retry.table([])",
            "ValueError: a table needs at least one step",
        ),
        Mistake(
            "A lease as text",
            'Lease("30s")',
            "TypeError: lease: expected seconds or a timedelta, from 100 ms to 1 day, like 30 or timedelta(minutes=5), got str",
        ),
        Mistake(
            "A lease of nothing",
            "Lease(0)",
            "ValueError: lease: expected seconds or a timedelta, from 100 ms to 1 day, like 30 or timedelta(minutes=5), got 0 s",
        ),
        Mistake(
            "Rescheduling to a time without a zone",
            "Reschedule(datetime(2030, 1, 1))",
            "ValueError: after: the datetime has no time zone, so its moment is unknown. Give one, as in datetime.now(UTC) + timedelta(hours=1)",
        ),
        Mistake(
            "Busy without a time",
            "Busy()",
            "TypeError: Busy: the argument retry_after is missing: write Busy(retry_after)",
        ),
        Mistake(
            "Progress in percent",
            'Job(id=1, kind="mail", state=None).progress(50)',
            "ValueError: progress: expected a fraction from 0 to 1, got 50",
        ),
        Mistake(
            "A next job without Continue",
            """
            @app.job("order.ship")
            async def ship(job: Job[None], order_id: int):
                return mail.new("a@b.c")


            from holdfast.testing import Testing

            await Testing(app, conn).run_job(ship.new(7))
            """,
            "InvalidJob: order.ship: a job was returned: to run mail next in this chain, return Continue(job); to run it beside, enqueue it and return something else",
        ),
        Mistake(
            "A coroutine that is returned",
            """
            async def sent() -> str: ...


            @app.job("order.close")
            async def close(job: Job[None], order_id: int):
                return sent()


            from holdfast.testing import Testing

            await Testing(app, conn).run_job(close.new(7))
            """,
            "InvalidJob: order.close: the coroutine sent(…) was returned, not its result: write await before it",
        ),
        Mistake(
            "A kind in place of the next job",
            "Continue(mail)",
            "TypeError: Continue: mail is a Kind, not a job: call its .new(…) and give what it returns",
        ),
    ),
)
