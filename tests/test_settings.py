from __future__ import annotations

import contextlib
import pickle
from dataclasses import FrozenInstanceError, fields, replace
from datetime import timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Retry
from holdfast._logs.log import FORMATS, LEVELS
from holdfast._model.errors import HoldfastError
from holdfast._model.scheme import ADDRESS_SHAPE
from holdfast._model.settings import Settings, SettingsError, read_retry
from holdfast._model.settings_table import QUEUE_ALIASES, SETTINGS, Setting
from holdfast._model.work import SHORTEST_LEASE

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "settings.md"
MS = timedelta(milliseconds=1)
URL = "postgresql://app:hunter2@db.example.org:5432/shop?sslpassword=hunter3"
FILE_AND_ADDRESSES = (
    "HOLDFAST_DATABASES_FILE (d.toml) must be set without several addresses in DATABASE_URL "
    "(postgresql://u:***@db/x postgresql://db/y)"
)
BY_NAME = {setting.name: setting for setting in SETTINGS}


def problems(environ: dict[str, str], **arguments: object) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as refused:
        Settings.load(environ, **arguments)
    return refused.value.problems


def test_the_defaults() -> None:
    settings = Settings.load({})
    shown = {known.name: getattr(settings, known.name) for known in fields(settings) if known.compare}
    assert shown == {
        "database_urls": (),
        "databases_file": None,
        "worker_enabled": False,
        "tick_runners": None,
        "tick_overall_max": 480_000 * MS,
        "tick_runner_max": 60_000 * MS,
        "tick_runner_max_items": 200,
        "shard_index": None,
        "shard_count": None,
        "busy_delay": 250 * MS,
        "idle_min": 1_000 * MS,
        "idle_max": 30_000 * MS,
        "jitter": 500 * MS,
        "error_backoff": 30_000 * MS,
        "error_jitter": 2_000 * MS,
        "shutdown_timeout": 30_000 * MS,
        "batch_size": 50,
        "concurrency": 10,
        "queue_concurrency": {},
        "process_max_jobs": None,
        "process_max_memory_mb": None,
        "lease": 60_000 * MS,
        "heartbeat": 15_000 * MS,
        "reap_interval": 10_000 * MS,
        "retry": Retry(),
        "api_base_url": None,
        "api_service_token": None,
        "archive_bucket": None,
        "archive_region": None,
        "archive_endpoint": None,
        "cleanup_cron": "17 3 * * *",
        "archive_export_cron": "47 3 * * *",
        "listen": True,
        "tracebacks": True,
        "max_connections": 6,
        "secret_names": None,
        "app_version": None,
        "log_format": "auto",
        "log_level": "info",
    }
    assert set(settings.sources.values()) == {"default"}
    assert set(settings.sources) == set(BY_NAME)
    assert settings.notes == ()


def test_the_table_speaks_of_every_field_once_and_agrees_with_the_words_it_borrows() -> None:
    known = [setting.field for setting in SETTINGS]
    names = [name for setting in SETTINGS for name in (setting.name, *setting.aliases)]
    assert len(set(known)) == len(known)
    assert len(set(names)) == len(names)
    assert {name.partition(".")[0] for name in known} == {f.name for f in fields(Settings)} - {"sources", "notes"}
    lease = BY_NAME["HOLDFAST_LEASE_MS"]
    assert (lease.lowest, lease.highest) == (SHORTEST_LEASE / MS, timedelta(days=1) / MS)
    assert BY_NAME["HOLDFAST_LOG_FORMAT"].words == FORMATS
    assert BY_NAME["HOLDFAST_LOG_LEVEL"].words == LEVELS


def test_the_page_has_the_table_of_the_code() -> None:
    lines = ["| variable | also read | default | unit | meaning |", "|---|---|---|---|---|"]
    for setting in SETTINGS:
        parts = {alias: f" for `{queue}`" for alias, queue in QUEUE_ALIASES.items()}
        also = ", ".join(f"`{alias}`{parts.get(alias, '')}" for alias in setting.aliases)
        default = f"`{setting.default}`" if setting.default else "unset"
        lines.append(f"| `{setting.name}` | {also} | {default} | {setting.unit} | {setting.meaning} |")
    assert "\n".join(lines) in PAGE.read_text(encoding="utf-8")


def test_an_argument_wins_over_the_environment_and_the_environment_over_the_default() -> None:
    settings = Settings.load(
        {"HOLDFAST_BATCH_SIZE": "100", "HOLDFAST_LEASE_MS": " 90000 ", "OUTBOX_CONCURRENCY": "4"},
        batch_size=20,
        lease=timedelta(seconds=90),
        tick_runners=["outbox", "mine"],
        concurrency=None,
    )
    assert (settings.batch_size, settings.concurrency, settings.idle_max) == (20, 4, 30_000 * MS)
    assert (settings.lease, settings.heartbeat) == (timedelta(seconds=90), timedelta(seconds=15))
    assert settings.tick_runners == ("outbox", "mine")
    assert settings.sources["HOLDFAST_BATCH_SIZE"] == "argument"
    assert settings.sources["HOLDFAST_LEASE_MS"] == "argument"
    assert settings.sources["HOLDFAST_CONCURRENCY"] == "alias OUTBOX_CONCURRENCY"
    assert settings.sources["HOLDFAST_HEARTBEAT_MS"] == "default"
    assert settings.notes == ("HOLDFAST_BATCH_SIZE is not used: batch_size (argument) has another value",)
    assert repr(settings) == "Settings(tick_runners=outbox,mine, batch_size=20, concurrency=4, lease=90000)"


# Two valid texts of each unit, and of each setting whose range excludes them.
TEXTS = {
    "ms": ("2000", "3000"),
    "number": ("3", "4"),
    "true or false": ("true", "false"),
    "names": ("outbox,a", "outbox,b"),
    "addresses": ("postgresql://one/shop", "postgresql://other/shop"),
    "queues": ("mail=1", "mail=2"),
    "text": ("http://one", "http://other"),
    "secret": ("one", "other"),
    "HOLDFAST_LOG_FORMAT": ("human", "json"),
    "HOLDFAST_LOG_LEVEL": ("debug", "error"),
}
# Settings that must be set together, or agree with another.
AROUND = {"HOLDFAST_SHARD_INDEX": "0", "HOLDFAST_SHARD_COUNT": "9"}


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_every_setting_has_the_same_precedence(setting: Setting) -> None:
    one, other = TEXTS.get(setting.name) or TEXTS[setting.unit]
    around = {name: text for name, text in AROUND.items() if setting.name in AROUND and name != setting.name}
    name = setting.field.partition(".")[0]

    def loaded(environ: dict[str, str], **arguments: object) -> tuple[object, str, tuple[str, ...]]:
        settings = Settings.load(around | environ, **arguments)
        return attrgetter(setting.field)(settings), settings.sources[setting.name], settings.notes

    by_name, *source = loaded({setting.name: one})
    assert source == [setting.name, ()]
    assert Settings.load({}).sources[setting.name] == "default"
    for alias in setting.aliases:
        if alias not in QUEUE_ALIASES:
            note = f"{alias} is not used: {setting.name} has another value"
            assert loaded({alias: one}) == (by_name, f"alias {alias}", ())
            assert loaded({alias: one, setting.name: one}) == (by_name, setting.name, ())
            assert loaded({alias: other, setting.name: one}) == (by_name, setting.name, (note,))
    argument = getattr(Settings.load(around | {setting.name: one}), name)
    assert loaded({setting.name: other}, **{name: argument})[:2] == (by_name, "argument")


def test_the_name_is_the_field_in_capitals() -> None:
    for setting in SETTINGS:
        if setting.field != "database_urls":
            unit = "_MS" if setting.unit == "ms" else ""
            assert setting.name == f"HOLDFAST_{setting.field.replace('.', '_').upper()}{unit}"


def test_an_empty_variable_is_not_set() -> None:
    settings = Settings.load({"HOLDFAST_BATCH_SIZE": "", "HOLDFAST_TICK_RUNNERS": "  "}, batch_size=7)
    assert (settings.batch_size, settings.tick_runners) == (7, None)


@pytest.mark.parametrize(
    ("environ", "given", "queues", "source", "noted"),
    [
        ({}, None, {}, "default", False),
        ({"PDF_RENDER_CONCURRENCY": "3"}, None, {"pdf": 3}, "alias PDF_RENDER_CONCURRENCY", False),
        (
            {"HOLDFAST_QUEUE_CONCURRENCY": "mail=5, sms=6,"},
            None,
            {"mail": 5, "sms": 6},
            "HOLDFAST_QUEUE_CONCURRENCY",
            False,
        ),
        (
            {"HOLDFAST_QUEUE_CONCURRENCY": "mail=5", "PDF_RENDER_CONCURRENCY": "3"},
            {"sms": 9},
            {"pdf": 3, "mail": 5, "sms": 9},
            "argument, HOLDFAST_QUEUE_CONCURRENCY, alias PDF_RENDER_CONCURRENCY",
            False,
        ),
        (
            {"HOLDFAST_QUEUE_CONCURRENCY": "pdf=4", "PDF_RENDER_CONCURRENCY": "3"},
            {"sms": 9},
            {"pdf": 4, "sms": 9},
            "argument, HOLDFAST_QUEUE_CONCURRENCY",
            True,
        ),
        ({"OUTBOX_QUEUE_CONCURRENCY": "mail=4"}, {"mail": 9}, {"mail": 9}, "argument", False),
    ],
)
def test_queues_are_taken_from_every_source_one_by_one(
    environ: dict[str, str], given: dict[str, int] | None, queues: dict[str, int], source: str, noted: bool
) -> None:
    settings = Settings.load(environ, queue_concurrency=given)
    assert settings.queue_concurrency == queues
    assert settings.sources["HOLDFAST_QUEUE_CONCURRENCY"] == source
    assert any("PDF_RENDER_CONCURRENCY is not used" in note for note in settings.notes) == noted


@pytest.mark.parametrize("text", ["true", "TRUE", "1", "yes", "on"])
def test_truth_is_written_in_many_ways(text: str) -> None:
    assert Settings.load({"HOLDFAST_WORKER_ENABLED": text}).worker_enabled
    assert not Settings.load(
        {"HOLDFAST_LISTEN": {"true": "false", "1": "0", "yes": "no"}.get(text.lower(), "off")}
    ).listen


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        (URL, (URL,)),
        ("postgres://a/x  postgresql://b/y", ("postgres://a/x", "postgresql://b/y")),
        ("host=db dbname=shop password='hunter 2'", ("host=db dbname=shop password='hunter 2'",)),
        ("eu=postgres://a/x us=postgresql://b/y", ("eu=postgres://a/x", "us=postgresql://b/y")),
    ],
)
def test_addresses(text: str, urls: tuple[str, ...]) -> None:
    assert Settings.load({"DATABASE_URL": text}).database_urls == urls
    assert Settings.load({}, database_urls=urls).database_urls == urls


def test_retry_comes_from_four_variables_or_from_an_argument() -> None:
    environ = {"HOLDFAST_RETRY_BASE_MS": "2000", "OUTBOX_WORKER_RETRY_MAX_MS": "9000"}
    assert Settings.load(environ).retry == Retry(base=timedelta(seconds=2), maximum=timedelta(seconds=9))
    policy = Retry(9, base=timedelta(seconds=1), factor=3.0, jitter=timedelta(0))
    settings = Settings.load(environ, retry=policy)
    assert settings.retry == policy
    assert {settings.sources[name] for name in BY_NAME if "_RETRY_" in name} == {"argument"}
    assert settings.notes == (
        "HOLDFAST_RETRY_BASE_MS is not used: retry.base (argument) has another value",
        "OUTBOX_WORKER_RETRY_MAX_MS is not used: retry.maximum (argument) has another value",
    )


def test_no_limit_of_attempts_as_an_argument() -> None:
    endless = Settings.load({"HOLDFAST_RETRY_MAX_ATTEMPTS": "6"}, retry=Retry(None))
    assert endless.retry == Retry(None)
    assert [(row.value, row.source) for row in endless.rows() if row.name == "HOLDFAST_RETRY_MAX_ATTEMPTS"] == [
        ("no limit", "argument")
    ]


def test_a_table_of_waits_as_an_argument() -> None:
    table = Retry.table([timedelta(minutes=1), timedelta(hours=1)], max_attempts=4)
    kept = Settings.load({"HOLDFAST_RETRY_MAX_ATTEMPTS": "6", "HOLDFAST_RETRY_BASE_MS": "2000"}, retry=table)
    assert kept.retry == table
    shown = {row.name: row.value for row in kept.rows() if row.name.startswith("HOLDFAST_RETRY_")}
    assert shown == {
        "HOLDFAST_RETRY_MAX_ATTEMPTS": "4",
        "HOLDFAST_RETRY_BASE_MS": "a table",
        "HOLDFAST_RETRY_MAXIMUM_MS": "a table",
        "HOLDFAST_RETRY_JITTER_MS": "500",
    }


@pytest.mark.parametrize(
    ("environ", "output"),
    [
        (
            {"HOLDFAST_HEARTBEAT_MS": "20000"},
            "HOLDFAST_HEARTBEAT_MS (20000) must be below a third of HOLDFAST_LEASE_MS (60000)",
        ),
        (
            {"OUTBOX_WORKER_PROCESSING_TIMEOUT_MS": "46000", "HOLDFAST_SHUTDOWN_TIMEOUT_MS": "46001"},
            "HOLDFAST_SHUTDOWN_TIMEOUT_MS (46001) must be at most OUTBOX_WORKER_PROCESSING_TIMEOUT_MS (46000)",
        ),
        (
            {"HOLDFAST_REAP_INTERVAL_MS": "60000"},
            "HOLDFAST_REAP_INTERVAL_MS (60000) must be below HOLDFAST_LEASE_MS (60000)",
        ),
        (
            {"HOLDFAST_IDLE_MIN_MS": "30001", "OUTBOX_WORKER_POLL_MS": "30000"},
            "HOLDFAST_IDLE_MIN_MS (30001) must be at most OUTBOX_WORKER_POLL_MS (30000)",
        ),
        (
            {"HOLDFAST_RETRY_BASE_MS": "5000", "HOLDFAST_RETRY_MAXIMUM_MS": "4999"},
            "HOLDFAST_RETRY_BASE_MS (5000) must be at most HOLDFAST_RETRY_MAXIMUM_MS (4999)",
        ),
        (
            {"HOLDFAST_SHARD_INDEX": "1"},
            "HOLDFAST_SHARD_INDEX (1) must be set together with HOLDFAST_SHARD_COUNT (unset)",
        ),
        (
            {"HOLDFAST_SHARD_COUNT": "1"},
            "HOLDFAST_SHARD_INDEX (unset) must be set together with HOLDFAST_SHARD_COUNT (1)",
        ),
        (
            {"HOLDFAST_SHARD_INDEX": "4", "HOLDFAST_SHARD_COUNT": "4"},
            "HOLDFAST_SHARD_INDEX (4) must be below HOLDFAST_SHARD_COUNT (4)",
        ),
        (
            {"HOLDFAST_SHARD_INDEX": "0", "HOLDFAST_SHARD_COUNT": "65"},
            "HOLDFAST_SHARD_COUNT must be from 1 to 64, not 65",
        ),
        ({"OUTBOX_WORKER_BATCH_SIZE": "0"}, "OUTBOX_WORKER_BATCH_SIZE must be from 1 to 10000, not 0"),
        (
            {"HOLDFAST_LEASE_MS": "86400001"},
            "HOLDFAST_LEASE_MS must be from 100 to 86400000, not 86400001",
        ),
        ({"HOLDFAST_BUSY_DELAY_MS": "-1"}, "HOLDFAST_BUSY_DELAY_MS must be from 0 to 86400000, not -1"),
        ({"HOLDFAST_CONCURRENCY": "1_0"}, "HOLDFAST_CONCURRENCY must be a whole number, not '1_0'"),
        ({"HOLDFAST_CONCURRENCY": "9" * 5000}, f"HOLDFAST_CONCURRENCY must be a whole number, not '{'9' * 100}'"),
        ({"HOLDFAST_CONCURRENCY": "٣"}, "HOLDFAST_CONCURRENCY must be a whole number, not '٣'"),
        ({"HOLDFAST_LISTEN": "maybe"}, "HOLDFAST_LISTEN must be true or false, not 'maybe'"),
        ({"HOLDFAST_LOG_FORMAT": "xml"}, "HOLDFAST_LOG_FORMAT must be one of auto, human, json, not 'xml'"),
        ({"HOLDFAST_QUEUE_CONCURRENCY": "pdf"}, "HOLDFAST_QUEUE_CONCURRENCY must be like name=2,name=3, not 'pdf'"),
        ({"HOLDFAST_QUEUE_CONCURRENCY": "pdf=0"}, "HOLDFAST_QUEUE_CONCURRENCY must be from 1 to 10000, not 0"),
        ({"PDF_RENDER_CONCURRENCY": "two"}, "PDF_RENDER_CONCURRENCY must be a whole number, not 'two'"),
        ({"HOLDFAST_TICK_RUNNERS": ","}, "HOLDFAST_TICK_RUNNERS must name at least one"),
        ({"HOLDFAST_TICK_RUNNERS": "outbox,outbox"}, "HOLDFAST_TICK_RUNNERS must be names, each of them once"),
        (
            {"DATABASE_URL": "mysql://u:hunter2@h/d"},
            f"DATABASE_URL begins with mysql://, and Holdfast needs PostgreSQL: give an address like {ADDRESS_SHAPE}",
        ),
        ({"DATABASE_URL": f"{URL} {URL}"}, "DATABASE_URL must be addresses, each of them once"),
        (
            {"DATABASE_URL": "EU=postgresql://db/x"},
            "DATABASE_URL must be like postgresql://user:password@host:port/dbname, several separated by spaces",
        ),
        (
            {"DATABASE_URL": "postgresql://u:hunter2@db/x postgresql://db/y", "HOLDFAST_DATABASES_FILE": "d.toml"},
            FILE_AND_ADDRESSES,
        ),
        ({"HOLDFAST_API_BASE_URL": "api.example.org"}, "HOLDFAST_API_BASE_URL must begin with http:// or https://"),
        ({"HOLDFAST_API_SERVICE_TOKEN": "hunter2\r\nx: y"}, "HOLDFAST_API_SERVICE_TOKEN must be printable text"),
    ],
)
def test_what_cannot_be_is_refused_and_names_what_to_change(environ: dict[str, str], output: str) -> None:
    assert problems(environ) == (output,)


@pytest.mark.parametrize(
    ("given", "output"),
    [
        ({"batch_size": True}, "batch_size (argument) must be a whole number, not bool"),
        ({"lease": "60"}, "lease (argument) must be seconds or a timedelta, not str"),
        ({"lease": timedelta(days=2)}, "lease (argument) must be from 100 to 86400000, not 172800000"),
        ({"database_urls": "postgresql://db/x"}, "database_urls (argument) must be a tuple, not str"),
        (
            {"queue_concurrency": {"pdf": 1.5}},
            "queue_concurrency (argument) must be a mapping of queues to whole numbers",
        ),
        ({"retry": 3}, "retry (argument) must be a Retry"),
        ({"batchsize": 3}, "batchsize is not a setting: did you mean batch_size?"),
        (
            {"heartbeat": timedelta(seconds=30)},
            "heartbeat (argument) (30000) must be below a third of HOLDFAST_LEASE_MS (60000)",
        ),
    ],
)
def test_arguments_are_checked_too(given: dict[str, object], output: str) -> None:
    assert problems({}, **given) == (output,)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"HOLDFAST_LEASE_MS": "30000"}, {"heartbeat": 7_500, "reap_interval": 5_000}),
        ({"OUTBOX_WORKER_PROCESSING_TIMEOUT_MS": "45000"}, {"heartbeat": 11_250, "reap_interval": 7_500}),
        (
            {"HOLDFAST_LEASE_MS": "12000"},
            {"heartbeat": 3_000, "reap_interval": 2_000, "shutdown_timeout": 12_000},
        ),
        # A worker that was not heard of for a minute is taken for dead, however long its leases are.
        ({"HOLDFAST_LEASE_MS": "600000"}, {"heartbeat": 15_000, "reap_interval": 10_000}),
        ({"HOLDFAST_IDLE_MIN_MS": "45000"}, {"idle_min": 45_000, "idle_max": 45_000}),
        ({"HOLDFAST_IDLE_MAX_MS": "400"}, {"idle_min": 400, "idle_max": 400, "jitter": 40}),
    ],
)
def test_a_default_follows_the_setting_it_depends_on(environ: dict[str, str], expected: dict[str, int]) -> None:
    settings = Settings.load(environ)
    assert {name: getattr(settings, name) for name in expected} == {name: ms * MS for name, ms in expected.items()}


def test_the_defaults_of_retries_follow_each_other() -> None:
    assert Settings.load({"HOLDFAST_RETRY_BASE_MS": "200000"}).retry.maximum == 200_000 * MS
    assert read_retry({"HOLDFAST_RETRY_MAXIMUM_MS": "1000"}).base == 1_000 * MS


def test_only_given_values_contradict_each_other() -> None:
    given = {"HOLDFAST_LEASE_MS": "30000", "HOLDFAST_HEARTBEAT_MS": "10000"}
    assert problems(given) == ("HOLDFAST_HEARTBEAT_MS (10000) must be below a third of HOLDFAST_LEASE_MS (30000)",)


def test_settings_are_fitted_to_the_shortest_lease_of_a_kind() -> None:
    leases = {"kind short": timedelta(seconds=6), "kind long": timedelta(minutes=5)}
    fitted = Settings.load({}).fitted(leases)
    assert (fitted.shutdown_timeout, fitted.reap_interval) == (6_000 * MS, 1_000 * MS)
    given = Settings.load({"HOLDFAST_SHUTDOWN_TIMEOUT_MS": "20000"}, reap_interval=timedelta(seconds=8))
    with pytest.raises(SettingsError) as refused:
        given.fitted(leases)
    assert refused.value.problems == (
        "HOLDFAST_SHUTDOWN_TIMEOUT_MS (20000) must be at most the lease of kind short (6000)",
        "reap_interval (argument) (8000) must be below the lease of kind short (6000)",
    )


def test_all_problems_are_reported_together_without_consequences() -> None:
    environ = {
        "HOLDFAST_LEASE_MS": "a minute",
        "HOLDFAST_HEARTBEAT_MS": "50000",
        "HOLDFAST_BATCH_SIZE": "0",
        "HOLDFAST_IDLE_MIN_MS": "9000",
        "HOLDFAST_IDLE_MAX_MS": "8000",
    }
    output = problems(environ, lese=3)
    assert output == (
        "lese is not a setting: did you mean lease?",
        "HOLDFAST_LEASE_MS must be a whole number, not 'a minute'",
        "HOLDFAST_BATCH_SIZE must be from 1 to 10000, not 0",
        "HOLDFAST_IDLE_MIN_MS (9000) must be at most HOLDFAST_IDLE_MAX_MS (8000)",
    )
    error = SettingsError(output)
    assert isinstance(error, HoldfastError)
    assert str(error).splitlines()[1] == "  - lese is not a setting: did you mean lease?"
    assert pickle.loads(pickle.dumps(error)).problems == output  # noqa: S301 - our own


def test_unknown_names_are_noted_with_what_was_meant() -> None:
    environ = {"OUTBOX_BATCHSIZE": "hunter2", "WORKER_INTERVAL_MINUTES": "2", "HOLDFAST_X": "1", "PATH": "/bin"}
    assert Settings.load(environ).notes == (
        "HOLDFAST_X is not known",
        "OUTBOX_BATCHSIZE is not known: did you mean OUTBOX_BATCH_SIZE?",
    )


@pytest.mark.parametrize(
    "url",
    [
        URL,
        "postgresql://:hunter2@h/d",
        "postgresql://app@tenant:hunter2@h/d",
        "postgresql://app:hun@ter/hunter2@h/d",
        "postgresql://h/d?user=app&password=hunter2&x=1",
        "host=h password = hunter2 user=app",
        "host=h password='a \\' hunter2'",
    ],
)
def test_secrets_are_shown_nowhere(url: str) -> None:
    environ = {"HOLDFAST_DATABASE_URL": url, "HOLDFAST_API_SERVICE_TOKEN": "hunter2"}
    environ |= {
        "HOLDFAST_API_BASE_URL": "https://me:hunter2@api/",
        "HOLDFAST_ARCHIVE_ENDPOINT": "https://me:hunter2@s3/",
    }
    settings = Settings.load(environ)
    assert settings.api_service_token == "hunter2"  # noqa: S105 - a token of nobody
    shown = f"{settings!r} {settings.rows()} {settings.notes} {settings.sources}"
    assert "hunter" not in shown
    assert "***" in shown
    wrong = {name: f"{url} {url}" for name in BY_NAME if BY_NAME[name].unit != "text"} | {"DATABASE_URL": f"x://{url}"}
    assert "hunter" not in str(problems(wrong, retry=url))


def test_rows_are_what_check_prints() -> None:
    rows = Settings.load({"DATABASE_URL": "postgresql://app:x@db/shop", "HOLDFAST_LISTEN": "off"}).rows()
    assert [row.name for row in rows] == [setting.name for setting in SETTINGS]
    by_name = {row.name: row for row in rows}
    assert by_name["HOLDFAST_DATABASE_URL"][1:] == (
        "postgresql://app:***@db/shop",
        "alias DATABASE_URL",
        "one address, or several separated by spaces, with or without names: `eu=postgresql://…`",
    )
    assert by_name["HOLDFAST_LISTEN"].value == "false"
    assert by_name["HOLDFAST_QUEUE_CONCURRENCY"].value == "unset"


def test_what_is_shown_can_be_read_again() -> None:
    arguments: dict[str, Any] = {
        "tick_runners": ("a", "b"),
        "jitter": 7 * MS,
        "queue_concurrency": {"x": 1},
        "shard_index": 0,
    }
    settings = Settings.load({}, **arguments, shard_count=2, listen=False)
    assert Settings.load({row.name: row.value for row in settings.rows() if row.value != "unset"}) == settings


def test_settings_never_change_and_stay_valid() -> None:
    settings = Settings.load({})
    with pytest.raises(FrozenInstanceError):
        settings.batch_size = 3  # type: ignore[misc]
    with pytest.raises(SettingsError, match="must be below a third"):
        replace(settings, lease=timedelta(seconds=40))
    assert pickle.loads(pickle.dumps(settings)) == settings  # noqa: S301 - our own
    assert hash(Settings.load({})) == hash(settings)


@given(
    st.dictionaries(st.sampled_from([*BY_NAME, "OUTBOX_WORKER_POLL_MS", "PDF_RENDER_CONCURRENCY"]), st.text(max_size=8))
)
def test_any_environment_is_read_or_refused(environ: dict[str, str]) -> None:
    with contextlib.suppress(SettingsError):
        assert Settings.load(environ).rows()


def test_the_retry_settings_are_read_alone() -> None:
    odd = {"HOLDFAST_CONCURRENCY": "many", "DATABASE_URL": "sqlite:///shop.db"}
    retry = read_retry(odd | {"OUTBOX_WORKER_MAX_ATTEMPTS": "7", "HOLDFAST_RETRY_BASE_MS": "200"})
    assert retry == Retry(7, base=timedelta(milliseconds=200))
    assert read_retry(odd) == Retry()
    with pytest.raises(SettingsError, match="HOLDFAST_RETRY_MAX_ATTEMPTS must be from 1 to 1000, not 0"):
        read_retry({"HOLDFAST_RETRY_MAX_ATTEMPTS": "0"})
