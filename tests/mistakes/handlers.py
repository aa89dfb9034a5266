"""Mistakes in registering handlers and schedules."""

from __future__ import annotations

from tests.mistakes.mistake import Area, Mistake

HANDLERS = Area(
    "Registering handlers",
    "Raised when the module is imported, so that a mistake never reaches a worker.",
    (
        Mistake(
            "The name is left out",
            """
            @app.job
            async def send(job, to: str): ...
            """,
            'TypeError: @app.job needs a name in parentheses: write @app.job("send")',
        ),
        Mistake(
            "The name is left out of the parentheses",
            """
            @app.job(queue="mail")
            async def send(job, to: str): ...
            """,
            "TypeError: app.job: the argument name is missing: write app.job(name, queue=…, priority=…, retry=…, lease=…, max_runtime=…, version=…, executor=…)",
        ),
        Mistake(
            "A keyword is misspelled",
            """
            @app.job("send", que="mail")
            async def send(job, to: str): ...
            """,
            "TypeError: app.job: there is no parameter que: did you mean queue?",
        ),
        Mistake(
            "A keyword that does not exist",
            """
            @app.job("send", labels=["mail"])
            async def send(job, to: str): ...
            """,
            "TypeError: app.job: there is no parameter labels: it takes name, queue, …",
        ),
        Mistake(
            "The name is taken",
            """
            @app.job("render")
            async def render(job: Job[None], page: int) -> None: ...


            @app.job("render")
            async def draw(job: Job[None], page: int) -> None: ...
            """,
            "KindTaken: render: a kind of this name is registered at shop.py line 1, and again at shop.py line 5: give one of them another name",
        ),
        Mistake(
            "The queue is not a name",
            """
            @app.job("send", queue=None)
            async def send(job, to: str): ...
            """,
            "InvalidJob: queue: expected text, got None",
        ),
        Mistake(
            "The name of a kind is empty",
            """
            @app.job("")
            async def send(job, to: str): ...
            """,
            "InvalidJob: kind: expected 1 to 200 bytes of text without control characters, got 0 bytes",
        ),
        Mistake(
            "The priority is a word",
            """
            @app.job("send", priority="high")
            async def send(job, to: str): ...
            """,
            "InvalidJob: priority: expected a whole number from 0 to 9, got 'high'",
        ),
        Mistake(
            "The priority is out of range",
            """
            @app.job("send", priority=10)
            async def send(job, to: str): ...
            """,
            "InvalidJob: priority: expected a whole number from 0 to 9, got 10",
        ),
        Mistake(
            "The number of attempts in place of a policy",
            """
            @app.job("send", retry=5)
            async def send(job, to: str): ...
            """,
            "TypeError: retry: write retry=Retry(max_attempts=5), not int",
        ),
        Mistake(
            "A time limit as text",
            """
            @app.job("send", max_runtime="5 minutes")
            async def send(job, to: str): ...
            """,
            "TypeError: max_runtime: expected seconds or a timedelta, from more than 0 to 366 days, like 30 or timedelta(minutes=5), got str",
        ),
        Mistake(
            "The version is text",
            """
            @app.job("send", version="2")
            async def send(job, to: str): ...
            """,
            "InvalidJob: version: expected a whole number from 1 to 32767, got '2'",
        ),
        Mistake(
            "An executor that does not exist",
            """
            @app.job("send", executor="processes")
            def send(job, to: str): ...
            """,
            "ValueError: executor: expected one of thread, process, got 'processes'",
        ),
        Mistake(
            "A coroutine for another process",
            """
            @app.job("render", executor="process")
            async def render(job, page: int): ...
            """,
            'TypeError: render: executor="process" is for a plain function: write def, or leave it out',
        ),
        Mistake(
            "A local function for another process",
            """
            def setup():
                @app.job("render", executor="process")
                def render(job: Job[None], page: int) -> None: ...


            setup()
            """,
            'TypeError: render: executor="process" imports the handler in another process, and setup.<locals>.render cannot be imported by name: define it with def at the top level of a module',
        ),
        Mistake(
            "A lambda for another process",
            'app.job("render", executor="process")(lambda job: None)',
            'TypeError: render: executor="process" imports the handler in another process, and <lambda> cannot be imported by name: define it with def at the top level of a module',
        ),
        Mistake(
            "A class as a handler",
            """
            @app.job("send")
            class Send:
                def __init__(self, to): ...
            """,
            "TypeError: Send: a handler is a function, and this is a class: write def, or async def",
        ),
        Mistake(
            "A generator as a handler",
            """
            @app.job("export")
            def export(job: Job[None], year: int):
                yield year
            """,
            "TypeError: export: a handler cannot yield: return the result, or enqueue a job for each part",
        ),
        Mistake(
            "A handler that is not a function",
            'app.job("send")("send")',
            "TypeError: 'send': a handler is a function: write def, or async def",
        ),
        Mistake(
            "A handler with *args",
            """
            @app.job("send")
            async def send(job: Job[None], *to: str) -> None: ...
            """,
            "TypeError: send: *to: the payload names every argument: write a named parameter, such as a list or a dict, not a positional-only one, *args or **kwargs",
        ),
        Mistake(
            "A result that cannot be stored",
            """
            @app.job("send")
            async def send(job: Job[None]) -> psycopg.Connection: ...
            """,
            "InvalidJob: send: what the handler returns cannot be stored and read again: psycopg.Connection is not a type that pydantic knows: use plain types, a dataclass, a TypedDict or a pydantic model",
        ),
        Mistake(
            "An argument that cannot be stored",
            """
            @app.job("send")
            async def send(job: Job[None], conn: psycopg.Connection) -> None: ...


            send.new(sync_conn)
            """,
            "InvalidJob: send: an argument cannot be stored as JSON: psycopg.Connection is not a type that pydantic knows: use plain types, a dataclass, a TypedDict or a pydantic model",
        ),
        Mistake(
            "An annotation that is not imported",
            """
            @app.job("send")
            async def send(job: Job[None], to: "Address") -> None: ...


            send.new("a@b.c")
            """,
            "InvalidJob: send: an annotation names Address, which its module does not have at run time: import it, and not only for type checkers",
        ),
        Mistake(
            "A batch handler without its annotation",
            """
            @app.batch("index")
            async def index(items): ...
            """,
            "TypeError: index: a batch handler has one parameter, a list of items: write (items: list[Item[Model]]), where Model is the type of its arguments",
        ),
        Mistake(
            "A batch handler that is written like a job",
            """
            @app.batch("index")
            async def index(job: Job[None], order: Order) -> None: ...
            """,
            "TypeError: index: a batch handler has one parameter, a list of items: write (items: list[Item[Model]]), where Model is the type of its arguments",
        ),
        Mistake(
            "A batch of no jobs",
            """
            @app.batch("index", size=0)
            async def index(items: list[Item[Order]]) -> None: ...
            """,
            "ValueError: size: expected a whole number from 1 to 10000, got 0",
        ),
        Mistake(
            "A declared kind without its model",
            'app.declare("invoice.print")',
            "TypeError: app.declare: the argument model is missing: write app.declare(name, model, queue=…, priority=…, max_attempts=…, version=…)",
        ),
        Mistake(
            "A declared kind whose model is a dict",
            'app.declare("invoice.print", {"id": int})',
            "TypeError: app.declare: invoice.print: the model is a type: give a pydantic model, a dataclass or a TypedDict, not a dict",
        ),
        Mistake(
            "An upgrade of the first version",
            """
            @mail.upgrade(from_version=1)
            def from_1(payload): ...
            """,
            "ValueError: mail: from_version: the kind has version 1: set version=2 in app.job first",
        ),
        Mistake(
            "An upgrade without the version",
            """
            @mail.upgrade
            def from_1(payload): ...
            """,
            "TypeError: upgrade: 1 argument by position, and it takes 0: write upgrade(from_version=…)",
        ),
        Mistake(
            "A hook that is called instead of passed",
            """
            @app.on_failure()
            def alert(failed): ...
            """,
            "TypeError: app.on_failure: the argument hook is missing: write app.on_failure(hook)",
        ),
    ),
)

RECURRING = Area(
    "Schedules and runners",
    "Raised when the module is imported.",
    (
        Mistake(
            "A schedule without its time",
            'app.schedule("nightly", mail.new("a@b.c"))',
            "TypeError: app.schedule: the argument every is missing: write app.schedule(name, job, every=…)",
        ),
        Mistake(
            "A crontab line that is not wrapped",
            'app.schedule("nightly", mail.new("a@b.c"), every="0 2 * * *")',
            'TypeError: every: write every=Every(3600) or every=Cron("0 2 * * *"), not str',
        ),
        Mistake(
            "A kind in place of a job",
            'app.schedule("nightly", mail, every=Cron("0 2 * * *"))',
            "TypeError: app.schedule: mail is a Kind, not a job: call its .new(…) and give what it returns",
        ),
        Mistake(
            "The name and the job are swapped",
            'app.schedule(mail.new("a@b.c"), "nightly", every=Cron("0 2 * * *"))',
            'TypeError: app.schedule: the name comes first, as a text, not a NewJob: write app.schedule("name", …)',
        ),
        Mistake(
            "A schedule as a decorator",
            """
            @app.schedule("nightly", every=Cron("0 2 * * *"))
            async def nightly(job): ...
            """,
            "TypeError: app.schedule: the argument job is missing: write app.schedule(name, job, every=…)",
        ),
        Mistake(
            "The name of a schedule is taken",
            """
            app.schedule("nightly", mail.new("a@b.c"), every=Cron("0 2 * * *"))
            app.schedule("nightly", mail.new("b@b.c"), every=Cron("0 3 * * *"))
            """,
            "HoldfastError: nightly: a runner or schedule of this name is registered at shop.py line 1, and again at shop.py line 2: give one of them another name",
        ),
        Mistake(
            "A crontab line with seconds",
            'Cron("0 0 2 * * *")',
            "InvalidSchedule: '0 0 2 * * *': a cron line has 5 fields (minute, hour, day, month, weekday), this has 6: write it like '30 2 * * 1-5'",
        ),
        Mistake(
            "A minute that does not exist",
            'Cron("61 * * * *")',
            "InvalidSchedule: '61 * * * *': bad minute: write it like '30 2 * * 1-5'",
        ),
        Mistake(
            "A city in place of a time zone",
            'Cron("0 2 * * *", tz="Berlin")',
            "InvalidSchedule: 'Berlin' is not a time zone known here: use a name like 'Europe/Warsaw' (without system time zones: pip install tzdata)",
        ),
        Mistake(
            "An interval by keyword",
            "Every(minutes=5)",
            "TypeError: Every: there is no parameter minutes: it takes interval",
        ),
        Mistake(
            "An interval of nothing",
            "Every(timedelta(0))",
            "InvalidSchedule: every: expected seconds or a timedelta, from 1 ms to 366 days, like 30 or timedelta(minutes=5), got 0 s",
        ),
        Mistake(
            "A runner without its name",
            """
            @app.runner
            async def tidy(tick): ...
            """,
            'TypeError: @app.runner needs a name in parentheses: write @app.runner("tidy")',
        ),
        Mistake(
            "A runner without its tick",
            """
            @app.runner("tidy")
            async def tidy(): ...
            """,
            "TypeError: tidy: a runner takes one argument, the tick: write def tidy(tick)",
        ),
        Mistake(
            "The name of a built-in runner",
            """
            @app.runner("reaper")
            async def tidy(tick): ...
            """,
            "HoldfastError: reaper: a built-in runner has this name: choose another one",
        ),
        Mistake(
            "A runner over HTTP with a whole address",
            'app.http_runner("tidy", "http://127.0.0.1/tidy")',
            "ValueError: path: expected percent-encoded ASCII that begins with /, such as /internal/tidy, got 'http://127.0.0.1/tidy': the host is set by WORKER_API_BASE_URL",
        ),
    ),
)
