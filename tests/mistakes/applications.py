"""Mistakes in making applications and workers."""

from __future__ import annotations

from tests.mistakes.mistake import Area, Mistake

APPLICATIONS = Area(
    "Applications",
    "Raised by `Holdfast(…)`.",
    (
        Mistake(
            "An address without a scheme",
            'Holdfast("127.0.0.1/shop")',
            """
            SettingsError: The settings are refused.
              - the address given to Holdfast has no scheme: it must look like postgresql://user:password@host:port/dbname
            """,
        ),
        Mistake(
            "The address of SQLAlchemy",
            'Holdfast("postgresql+psycopg://127.0.0.1/shop")',
            """
            SettingsError: The settings are refused.
              - the address given to Holdfast begins with postgresql+psycopg://: write postgresql://, without the name of a driver
            """,
        ),
        Mistake(
            "The address of another database",
            'Holdfast("sqlite:///shop.db")',
            """
            SettingsError: The settings are refused.
              - the address given to Holdfast begins with sqlite://, and Holdfast needs PostgreSQL: give an address like postgresql://user:password@host:port/dbname
            """,
        ),
        Mistake(
            "A password that is not percent-encoded",
            'Holdfast("postgresql://shop:hu@sh:hush@127.0.0.1/shop")',
            """
            SettingsError: The settings are refused.
              - the address given to Holdfast has several @: percent-encode special characters in user and password, @ is %40
            """,
        ),
        Mistake(
            "A connection in place of an address",
            "Holdfast(sync_conn)",
            "TypeError: Holdfast: expected an address such as postgresql://user:password@host:port/dbname, got Connection",
        ),
        Mistake(
            "A keyword that does not exist, for the address",
            'Holdfast(database_url="postgresql://127.0.0.1/shop")',
            "TypeError: Holdfast: there is no parameter database_url: it takes url, …",
        ),
        Mistake(
            "An address in place of a wake-up broker",
            'Holdfast("postgresql://127.0.0.1/shop", wake="redis://127.0.0.1")',
            "TypeError: wake: write wake=RedisWake(address), not str",
        ),
        Mistake(
            "A codec that is a class",
            'Holdfast("postgresql://127.0.0.1/shop", codec=JsonCodec)',
            "TypeError: codec: write codec=JsonCodec(), not the class JsonCodec",
        ),
        Mistake(
            "A lifespan without its decorator",
            """
            async def lifespan(app):
                yield {"pool": None}


            Holdfast("postgresql://127.0.0.1/shop", lifespan=lifespan)
            """,
            "TypeError: lifespan: write @asynccontextmanager above lifespan, from contextlib",
        ),
    ),
)

WORKERS = Area(
    "Workers and settings",
    "Raised by `app.worker(…)`, before anything is claimed.",
    (
        Mistake(
            "Queues as a list",
            'app.worker(queues=["mail"])',
            'TypeError: queues: expected a mapping such as {"default": 10, "mail": 2}, got list',
        ),
        Mistake(
            "A queue with no handlers",
            'app.worker(queues={"mail": 0})',
            'ValueError: queues: expected a mapping such as {"default": 10, "mail": 2}, with 1 to 10000 handlers at once each, got \'mail\': 0',
        ),
        Mistake(
            "No queues",
            "app.worker(queues={})",
            'ValueError: queues: expected a mapping such as {"default": 10, "mail": 2}, got an empty one. Leave it out to serve all queues of the kinds',
        ),
        Mistake(
            "A setting is misspelled",
            "app.worker(concurency=4)",
            """
            SettingsError: The settings are refused.
              - concurency is not a setting: did you mean concurrency?
            """,
        ),
        Mistake(
            "A number as text",
            'app.worker(concurrency="4")',
            """
            SettingsError: The settings are refused.
              - concurrency (argument) must be a whole number, not str
            """,
        ),
        Mistake(
            "A pause as text",
            'app.worker(poll_interval="5s")',
            "TypeError: poll_interval: expected seconds or a timedelta, from more than 0 to 1 day, like 30 or timedelta(minutes=5), got str",
        ),
        Mistake(
            "A worker in a plain `with`",
            """
            with app.worker():
                ...
            """,
            "TypeError: a worker is asynchronous: write `async with app.worker(): …` instead of `with`",
        ),
        Mistake(
            "A worker that is awaited",
            "await app.worker()",
            "TypeError: a worker is not awaited: write `async with app.worker(): …`, and it runs inside the block",
        ),
        Mistake(
            "A worker without a database",
            "Holdfast().worker()",
            """
            SettingsError: The settings are refused.
              - no database: give Holdfast an address, or set HOLDFAST_DATABASE_URL
            """,
        ),
        Mistake(
            "A worker that is used twice",
            """
            worker = app.worker(poll_interval=1)
            async with worker:
                pass
            async with worker:
                pass
            """,
            "HoldfastError: a worker runs once: for another run, call app.worker() again",
        ),
        Mistake(
            "A variable that is not a number",
            'Settings.load({"HOLDFAST_BATCH_SIZE": "many"})',
            """
            SettingsError: The settings are refused.
              - HOLDFAST_BATCH_SIZE must be a whole number, not 'many'
            """,
        ),
    ),
)
