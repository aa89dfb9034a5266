"""The table of settings: what each is called, means, and may be."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from holdfast._model.duration import LONGEST
from holdfast._model.retry import MAX_ATTEMPTS

if TYPE_CHECKING:
    from collections.abc import Callable

Unit = Literal["ms", "number", "true or false", "names", "addresses", "queues", "word", "text", "secret"]

_MS = timedelta(milliseconds=1)
_DAY = 86_400_000
_MANY = 10_000


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    field: str
    unit: Unit
    default: str
    """As it would be written in the environment; empty when there is none."""
    meaning: str
    aliases: tuple[str, ...] = ()
    """Other variables for the same setting. The first one that is set wins, after `name`."""
    lowest: int = 1
    highest: int = _DAY
    words: tuple[str, ...] = ()


# Aliases that set the number of one queue.
QUEUE_ALIASES = {"PDF_RENDER_CONCURRENCY": "pdf"}

# The name is HOLDFAST_ and the field in capitals, with _MS for a time; the aliases are the names of other systems.
# fmt: off
SETTINGS = (
    Setting("HOLDFAST_DATABASE_URL", "database_urls", "addresses", "",
            "one address, or several separated by spaces, with or without names: `eu=postgresql://…`",
            ("DATABASE_URL",)),
    Setting("HOLDFAST_DATABASES_FILE", "databases_file", "text", "",
            "a TOML file of databases by name; `holdfast worker` follows its changes"),
    Setting("HOLDFAST_WORKER_ENABLED", "worker_enabled", "true or false", "false", "run a worker in this web process",
            ("OUTBOX_WORKER_ENABLED",)),
    Setting("HOLDFAST_TICK_RUNNERS", "tick_runners", "names", "",
            "the runners, in order; the built-in ones follow, except those with a minus: `-relay`",
            ("WORKER_TICK_RUNNERS",)),
    Setting("HOLDFAST_TICK_OVERALL_MAX_MS", "tick_overall_max", "ms", "480000", "time for a one-shot tick",
            ("WORKER_TICK_OVERALL_MAX_MS",)),
    Setting("HOLDFAST_TICK_RUNNER_MAX_MS", "tick_runner_max", "ms", "60000", "time for each of its runners",
            ("WORKER_TICK_RUNNER_MAX_MS",)),
    Setting("HOLDFAST_TICK_RUNNER_MAX_ITEMS", "tick_runner_max_items", "number", "200", "items for each of its runners",
            ("WORKER_TICK_RUNNER_MAX_ITEMS",), highest=1_000_000),
    Setting("HOLDFAST_SHARD_INDEX", "shard_index", "number", "", "which part of the jobs is claimed here, from 0",
            ("WORKER_TICK_SHARD_INDEX",), lowest=0, highest=63),
    Setting("HOLDFAST_SHARD_COUNT", "shard_count", "number", "", "how many such parts there are",
            ("WORKER_TICK_SHARD_COUNT",), highest=64),
    Setting("HOLDFAST_BUSY_DELAY_MS", "busy_delay", "ms", "250",
            "pause after a pass that did something; a wake-up cuts it short", ("WORKER_BUSY_LOOP_DELAY_MS",), lowest=0),
    Setting("HOLDFAST_IDLE_MIN_MS", "idle_min", "ms", "1000", "first pause when idle, then doubled",
            ("WORKER_IDLE_BACKOFF_MIN_MS",)),
    Setting("HOLDFAST_IDLE_MAX_MS", "idle_max", "ms", "30000", "longest pause when idle",
            ("WORKER_IDLE_BACKOFF_MAX_MS", "OUTBOX_WORKER_POLL_MS")),
    Setting("HOLDFAST_JITTER_MS", "jitter", "ms", "500", "added at random to both pauses",
            ("WORKER_IDLE_BACKOFF_JITTER_MS",), lowest=0),
    Setting("HOLDFAST_ERROR_BACKOFF_MS", "error_backoff", "ms", "30000", "pause after a tick that failed",
            ("WORKER_TICK_LOOP_ERROR_BACKOFF_MS",)),
    Setting("HOLDFAST_ERROR_JITTER_MS", "error_jitter", "ms", "2000", "added at random to that pause",
            ("WORKER_TICK_LOOP_MAX_JITTER_MS",), lowest=0),
    Setting("HOLDFAST_SHUTDOWN_TIMEOUT_MS", "shutdown_timeout", "ms", "30000",
            "how long running jobs may go on after a stop; at most the lease",
            ("WORKER_SHUTDOWN_TIMEOUT_MS",), lowest=0),
    Setting("HOLDFAST_BATCH_SIZE", "batch_size", "number", "50", "jobs per claim; up to 250 if so many start soon",
            ("OUTBOX_BATCH_SIZE", "OUTBOX_WORKER_BATCH_SIZE"), highest=_MANY),
    Setting("HOLDFAST_CONCURRENCY", "concurrency", "number", "10", "running handlers per process",
            ("OUTBOX_CONCURRENCY",), highest=_MANY),
    Setting("HOLDFAST_QUEUE_CONCURRENCY", "queue_concurrency", "queues", "",
            "running handlers per queue, `name=n,name=n`; other queues: as many as per process",
            ("OUTBOX_QUEUE_CONCURRENCY", "PDF_RENDER_CONCURRENCY"), highest=_MANY),
    Setting("HOLDFAST_PROCESS_MAX_JOBS", "process_max_jobs", "number", "",
            'jobs after which a process of `executor="process"` is replaced', highest=1_000_000),
    Setting("HOLDFAST_PROCESS_MAX_MEMORY_MB", "process_max_memory_mb", "number", "",
            "memory beyond which such a process is replaced after its job, in MiB", highest=1_000_000),
    Setting("HOLDFAST_LEASE_MS", "lease", "ms", "60000", "how long a job is held between two heartbeats",
            ("OUTBOX_LEASE_DURATION_MS", "OUTBOX_WORKER_PROCESSING_TIMEOUT_MS"), lowest=100),
    Setting("HOLDFAST_HEARTBEAT_MS", "heartbeat", "ms", "15000", "between renewals; below a third of the lease",
            ("OUTBOX_LEASE_HEARTBEAT_MS",)),
    Setting("HOLDFAST_REAP_INTERVAL_MS", "reap_interval", "ms", "10000", "between reaps of the fleet; below the lease",
            ("OUTBOX_REAP_INTERVAL_MS",)),
    Setting("HOLDFAST_RETRY_MAX_ATTEMPTS", "retry.max_attempts", "number", "3", "runs of a job in all",
            ("OUTBOX_MAX_ATTEMPTS", "OUTBOX_WORKER_MAX_ATTEMPTS"), highest=MAX_ATTEMPTS),
    Setting("HOLDFAST_RETRY_BASE_MS", "retry.base", "ms", "5000", "wait after the first failure, then doubled",
            ("OUTBOX_RETRY_BASE_MS", "OUTBOX_WORKER_RETRY_BASE_MS"), lowest=0, highest=LONGEST // _MS),
    Setting("HOLDFAST_RETRY_MAXIMUM_MS", "retry.maximum", "ms", "120000", "longest wait after a failure",
            ("OUTBOX_RETRY_MAX_MS", "OUTBOX_WORKER_RETRY_MAX_MS"), lowest=0, highest=LONGEST // _MS),
    Setting("HOLDFAST_RETRY_JITTER_MS", "retry.jitter", "ms", "500", "added at random to that wait",
            ("OUTBOX_RETRY_JITTER_MS",), lowest=0, highest=LONGEST // _MS),
    Setting("HOLDFAST_API_BASE_URL", "api_base_url", "text", "", "where HTTP-calling runners call",
            ("WORKER_API_BASE_URL",)),
    Setting("HOLDFAST_API_SERVICE_TOKEN", "api_service_token", "secret", "", "sent by them as `x-service-token`",
            ("WORKER_API_SERVICE_TOKEN",)),
    Setting("HOLDFAST_ARCHIVE_BUCKET", "archive_bucket", "text", "",
            "where closed days are archived: a bucket, or s3://, gs://, az:// or file:// and a folder",
            ("ARCHIVE_BUCKET",)),
    Setting("HOLDFAST_ARCHIVE_REGION", "archive_region", "text", "", "the region of the bucket", ("ARCHIVE_REGION",)),
    Setting("HOLDFAST_ARCHIVE_ENDPOINT", "archive_endpoint", "text", "",
            "the address of the object store, unless it is the provider's own", ("ARCHIVE_ENDPOINT",)),
    Setting("HOLDFAST_CLEANUP_CRON", "cleanup_cron", "text", "17 3 * * *",
            "when the runner `cleanup` moves and drops what is archived, in UTC unless a time zone follows",
            ("CLEANUP_CRON",)),
    Setting("HOLDFAST_ARCHIVE_EXPORT_CRON", "archive_export_cron", "text", "47 3 * * *",
            "when the runner `archiveExport` archives closed days, in UTC unless a time zone follows",
            ("ARCHIVE_EXPORT_CRON",)),
    Setting("HOLDFAST_LISTEN", "listen", "true or false", "true",
            "be woken by notifications, on a connection of its own; polling goes on underneath"),
    Setting("HOLDFAST_MAX_CONNECTIONS", "max_connections", "number", "6",
            "connections a process is reckoned to need per database", lowest=3, highest=1000),
    Setting("HOLDFAST_SECRET_NAMES", "secret_names", "names", "",
            "more names whose values are masked in errors, logs, traces and pages; only from the environment"),
    Setting("HOLDFAST_TRACEBACKS", "tracebacks", "true or false", "true",
            "keep the tracebacks of failed attempts, masked, in the table `attempt`"),
    Setting("HOLDFAST_APP_VERSION", "app_version", "text", "",
            "the version of your application, shown with workers, attempts and dead letters: a release or a commit"),
    Setting("HOLDFAST_LOG_FORMAT", "log_format", "word", "auto",
            "`human`, `json`, or `auto`: human on a terminal, else JSON", words=("auto", "human", "json")),
    Setting("HOLDFAST_LOG_LEVEL", "log_level", "word", "info", "the least level logged",
            words=("debug", "info", "warning", "error", "critical")),
)
# fmt: on

# Two settings that must agree: the fields, whether their values do, and the rule in words.
RULES: tuple[tuple[str, str, Callable[[Any, Any], bool], str], ...] = (
    ("heartbeat", "lease", lambda heartbeat, lease: heartbeat * 3 < lease, "below a third of"),
    ("shutdown_timeout", "lease", lambda timeout, lease: timeout <= lease, "at most"),
    ("reap_interval", "lease", lambda interval, lease: interval < lease, "below"),
    ("idle_min", "idle_max", lambda least, limit: least <= limit, "at most"),
    ("retry.base", "retry.maximum", lambda base, limit: base is None or base <= limit, "at most"),
    (
        "databases_file",
        "database_urls",
        lambda file, urls: file is None or len(urls) < 2,  # noqa: PLR2004
        "set without several addresses in",
    ),
    ("shard_index", "shard_count", lambda index, count: (index is None) == (count is None), "set together with"),
    ("shard_index", "shard_count", lambda index, count: None in (index, count) or index < count, "below"),
)

# Defaults that depend on another setting: the field, the field it follows, and how.
FOLLOWS: tuple[tuple[str, str, Callable[[timedelta, timedelta], timedelta]], ...] = (
    ("heartbeat", "lease", lambda default, lease: min(default, lease / 4)),
    ("reap_interval", "lease", lambda default, lease: min(default, lease / 6)),
    ("shutdown_timeout", "lease", min),
    ("idle_max", "idle_min", max),
    ("idle_min", "idle_max", min),
    ("jitter", "idle_max", lambda default, longest: min(default, longest / 10)),
    ("retry.maximum", "retry.base", max),
    ("retry.base", "retry.maximum", min),
)
