"""Mistakes in the commands that operators use."""

from __future__ import annotations

from tests.mistakes.mistake import Area, Mistake

OPERATING = Area(
    "Jobs, queues and schedules",
    "Commands that read or change what is stored.",
    (
        Mistake(
            "No action",
            "holdfast jobs",
            "holdfast jobs: the action is missing: give one of list, show, retry, cancel, delete, resume-key",
        ),
        Mistake(
            "The action is misspelled",
            "holdfast jobs lst",
            "holdfast jobs: there is no action lst: did you mean list?",
        ),
        Mistake(
            "An id that is not a number",
            "holdfast jobs show abc",
            "holdfast jobs show: ID: 'abc' is not the id of a job: expected a number from 1 to 9223372036854775807",
        ),
        Mistake(
            "A job that does not exist",
            "holdfast jobs show 999",
            "holdfast jobs: job 999 does not exist: it was never committed, was deleted, or its history has expired. See `holdfast jobs list`",
        ),
        Mistake(
            "A status that does not exist, on the command line",
            "holdfast jobs list --status done",
            "holdfast jobs list: --status: expected one of blocked, pending, processing, completed, failed, cancelled, got done",
        ),
        Mistake(
            "Retrying nothing",
            "holdfast jobs retry",
            "holdfast jobs retry: name jobs by their ids, or by what they have in common, and not both",
        ),
        Mistake(
            "Retrying a job that does not exist",
            "holdfast jobs retry 999",
            "999: does not exist, see `holdfast jobs list`: only a dead letter (failed) can be retried",
        ),
        Mistake(
            "Deleting without a confirmation",
            "holdfast jobs delete 999",
            "holdfast jobs: deleting keeps nothing of a job: give --yes, or cancel the jobs instead",
        ),
        Mistake(
            "An order key that is not blocked",
            "holdfast jobs resume-key customer-7",
            "holdfast jobs: the order key customer-7 is not blocked: only a key that a failed job blocks must be resumed",
        ),
        Mistake(
            "A queue that is not named",
            "holdfast queues pause",
            "holdfast queues pause: NAME is missing: write holdfast queues pause NAME",
        ),
        Mistake(
            "Nothing to set",
            "holdfast queues set mail",
            "holdfast queues: nothing to set for mail: give --concurrency, --lease, --rate",
        ),
        Mistake(
            "A concurrency that is a word",
            "holdfast queues set mail --concurrency lots",
            "holdfast queues set: --concurrency: expected a number from 0 to 100000, got 'lots'",
        ),
        Mistake(
            "A subscription that does not exist",
            "holdfast events pause ship",
            "holdfast events: no subscription is named ship: there are none",
        ),
        Mistake(
            "A replay without its start",
            "holdfast events replay ship",
            "holdfast events replay: --since or --after is missing: give one of them",
        ),
        Mistake(
            "A time without a zone",
            "holdfast events replay ship --since yesterday",
            "holdfast events replay: --since: 'yesterday' is no time with a zone, such as 2026-11-15T07:30Z",
        ),
        Mistake(
            "A schedule that does not exist",
            "holdfast runners trigger nightly",
            "holdfast runners: no schedule is named nightly: there are …",
        ),
    ),
)

SERVING = Area(
    "Access and the dashboard",
    "Commands that serve the operations API.",
    (
        Mistake(
            "A token without a role",
            "holdfast tokens make ci",
            "holdfast tokens make: --role is missing: write holdfast tokens make NAME --role viewer|operator|developer",
        ),
        Mistake(
            "A role that does not exist",
            "holdfast tokens make ci --role admin",
            "holdfast tokens make: --role: expected one of viewer, operator, developer, got admin",
        ),
        Mistake(
            "An expiry that is a word",
            "holdfast tokens make ci --role viewer --expires soon",
            "holdfast tokens make: --expires: 'soon': write 30m, 12h, 90d or 8w, at most 3650d",
        ),
        Mistake(
            "The key of a token that does not exist",
            "holdfast tokens revoke ci",
            "holdfast tokens revoke: KEY: a key has 12 hexadecimal digits: see `holdfast tokens list`",
        ),
        Mistake(
            "A port that does not exist",
            "holdfast serve --port 99999",
            "holdfast serve: --port: '99999' is not a port: expected a number from 0 to 65535",
        ),
        Mistake(
            "A part of the options for JWT",
            "holdfast serve --jwt-issuer https://id.example",
            "holdfast serve: --jwt-issuer, --jwt-audience and --jwt-keys belong together: give all three",
        ),
        Mistake(
            "A secret that is not there",
            "holdfast serve --secret-file nowhere",
            "holdfast serve: --secret-file: cannot read nowhere: No such file or directory: give a file",
        ),
        Mistake(
            "The terminal dashboard without a terminal",
            "holdfast top",
            "holdfast top: this needs a terminal; for programs there are `holdfast queues --json`, `jobs list --json`, …",
        ),
    ),
)
