"""Mistakes in starting workers and in the address of the database."""

from __future__ import annotations

from tests.mistakes.mistake import Area, Mistake

STARTING = Area(
    "Starting a worker",
    "The command prints one line on standard error. The exit status is 2 for wrong usage, otherwise 1 or 5.",
    (
        Mistake(
            "The command is misspelled",
            "holdfast wroker shop:app",
            "holdfast: there is no command wroker: did you mean worker?",
        ),
        Mistake(
            "No command",
            "holdfast",
            "holdfast: the command is missing: give one of …migrate, worker, …",
        ),
        Mistake(
            "No application",
            "holdfast worker",
            "holdfast worker: APP is missing: write holdfast worker APP, e.g. shop.jobs:app",
        ),
        Mistake(
            "The module alone",
            "holdfast worker shop",
            "holdfast worker: shop does not name an application: write module:attribute, e.g. shop.jobs:app",
        ),
        Mistake(
            "A file in place of a module",
            "holdfast worker ./shop.py:app",
            "holdfast worker: ./shop.py is a file, not a module: write shop:app",
        ),
        Mistake(
            "A file alone",
            "holdfast worker ./shop.py",
            "holdfast worker: ./shop.py is a file, not a module: write shop:app",
        ),
        Mistake(
            "The attribute is misspelled",
            "holdfast worker shop:ap",
            "holdfast worker: shop has no ap: did you mean shop:app?",
        ),
        Mistake(
            "An attribute that is not an application",
            "holdfast worker shop:Job",
            "holdfast worker: shop:Job is a type, not a Holdfast: did you mean shop:app?",
        ),
        Mistake(
            "A module that does not exist",
            "holdfast worker shopp:app",
            "holdfast worker: there is no module shopp in … or on the Python path: run this where the application's code is, or set PYTHONPATH",
        ),
        Mistake(
            "A module that cannot be imported",
            "holdfast worker broken:app",
            "holdfast worker: importing broken failed at broken.py line 1: ModuleNotFoundError: No module named 'nowhere': install it, or correct the import",
        ),
        Mistake(
            "A queue without a number",
            "holdfast worker shop:app --queues mail",
            "holdfast worker: --queues: 'mail': write name=number,name=number, each name once, numbers from 1 to 10000",
        ),
        Mistake(
            "No processes",
            "holdfast worker shop:app --processes 0",
            "holdfast worker: --processes: expected a number from 1 to 256, got '0'",
        ),
        Mistake(
            "An option that does not exist",
            "holdfast worker shop:app -c 4",
            "holdfast worker: there is no option -c: write --concurrency 4",
        ),
        Mistake(
            "The application before the command",
            "holdfast -A shop worker",
            "holdfast: there is no option -A: the application is named after the command: write holdfast worker shop.jobs:app",
        ),
        Mistake(
            "An option is shortened to a word that does not exist",
            "holdfast worker shop:app --log-levl debug",
            "holdfast worker: there is no option --log-levl: did you mean --log-level?",
        ),
        Mistake(
            "A port in place of an address to listen on",
            "holdfast worker shop:app --http 9464",
            "holdfast worker: --http: '9464': write HOST:PORT, e.g. 127.0.0.1:9464",
        ),
        Mistake(
            "A log level that does not exist",
            "holdfast worker shop:app --log-level loud",
            "holdfast worker: --log-level: expected one of debug, info, warning, error, critical, got loud",
        ),
        Mistake(
            "A setting that is not a number",
            "HOLDFAST_BATCH_SIZE=many holdfast worker shop:app",
            "holdfast worker: the settings are refused: HOLDFAST_BATCH_SIZE must be a whole number, not 'many'",
        ),
        Mistake(
            "A runner that does not exist",
            "HOLDFAST_TICK_RUNNERS=nightly holdfast worker shop:app",
            "holdfast worker: HOLDFAST_TICK_RUNNERS: no runner is named nightly; there are outbox, relay, schedules, reaper, bulk_actions, maintenance",
        ),
    ),
)

DATABASES = Area(
    "Reaching the database",
    "No message contains a password.",
    (
        Mistake(
            "No address",
            "DATABASE_URL= holdfast jobs list",
            "holdfast jobs: no database: give --database-url, or set HOLDFAST_DATABASE_URL or DATABASE_URL",
        ),
        Mistake(
            "An address without a scheme, on the command line",
            "holdfast jobs list --database-url 127.0.0.1/shop",
            "holdfast jobs: cannot read the URL of --database-url: it must look like postgresql://user:password@host:port/dbname, special characters in user and password percent-encoded",
        ),
        Mistake(
            "The address of SQLAlchemy, on the command line",
            "holdfast jobs list --database-url postgresql+psycopg://127.0.0.1/shop",
            "holdfast jobs: the URL of --database-url begins with postgresql+psycopg://: write postgresql://, without the name of a driver",
        ),
        Mistake(
            "The address of SQLAlchemy, in the environment",
            "HOLDFAST_DATABASE_URL=postgresql+psycopg://127.0.0.1/shop holdfast worker shop:app",
            "holdfast worker: the settings are refused: HOLDFAST_DATABASE_URL begins with postgresql+psycopg://: write postgresql://, without the name of a driver",
        ),
        Mistake(
            "The address of another database, in the environment",
            "DATABASE_URL=sqlite:///shop.db holdfast migrate",
            "holdfast migrate: the URL of DATABASE_URL begins with sqlite://, and Holdfast needs PostgreSQL: give an address like postgresql://user:password@host:port/dbname",
        ),
        Mistake(
            "A password that is not percent-encoded, on the command line",
            "holdfast migrate --database-url postgresql://shop:hu@sh:hush@127.0.0.1/shop",
            "holdfast migrate: cannot read the URL of --database-url: it must look like postgresql://user:password@host:port/dbname, special characters in user and password percent-encoded",
        ),
        Mistake(
            "Nothing listens there",
            "holdfast jobs list --database-url postgresql://127.0.0.1:1/shop",
            'holdfast jobs: cannot connect to the database of --database-url: connection failed: connection to server at "127.0.0.1", port 1 failed: …. Correct the address, or start the server',
        ),
        Mistake(
            "A host that does not exist",
            "holdfast jobs list --database-url postgresql://nowhere.invalid/shop",
            "holdfast jobs: cannot connect to the database of --database-url: failed to resolve host 'nowhere.invalid': …. Correct the address, or start the server",
        ),
        Mistake(
            "A database that does not exist",
            "DATABASE_URL=$SERVER/nowhere holdfast worker shop:app",
            'holdfast worker: nowhere: database "nowhere" does not exist. Correct the address of the database, or create what is missing',
        ),
        Mistake(
            "A database that was never migrated",
            "DATABASE_URL=$SERVER/empty holdfast worker shop:app",
            "holdfast worker: This database has no Holdfast schema: run `holdfast migrate`.",
        ),
        Mistake(
            "Listing jobs of a database that was never migrated",
            "DATABASE_URL=$SERVER/empty holdfast jobs list",
            "holdfast jobs: This database has no Holdfast schema: run `holdfast migrate`.",
        ),
        Mistake(
            "Checking the schema of a database that was never migrated",
            "DATABASE_URL=$SERVER/empty holdfast migrate --check",
            "holdfast migrate: This database has no Holdfast schema: run `holdfast migrate`.",
        ),
        Mistake(
            "One of several databases must be chosen",
            "DATABASE_URL='eu=$SERVER/a us=$SERVER/b' holdfast queues pause mail",
            "holdfast queues: DATABASE_URL names 2 databases: choose one with --database: eu, us",
        ),
        Mistake(
            "The name of a database is misspelled",
            "DATABASE_URL='europe=$SERVER/a us=$SERVER/b' holdfast jobs list --database eurpe",
            "holdfast jobs: there is no database eurpe: did you mean europe?",
        ),
        Mistake(
            "An address and a name",
            "holdfast jobs list --database eu --database-url postgresql://127.0.0.1:1/shop",
            "holdfast jobs list: --database-url and --database exclude each other: give one of them",
        ),
    ),
)
