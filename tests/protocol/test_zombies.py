from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from holdfast._drivers import run_sync
from holdfast._model.new_job import OrderKey
from holdfast._model.outcome import Completed, Failed
from holdfast._model.work import Lease
from holdfast._store.chain import complete_chain, delete_chains
from holdfast._store.finish import Ending, finish_jobs
from holdfast._store.lease import ClaimAnswer, Held, renew_leases
from holdfast._store.search import cancel_job
from holdfast._store.statement import statements
from tests.kit.mutation import open_trap
from tests.kit.workers import Worker, enqueue, expire_leases, job, number, statuses
from tests.protocol.zombies import FAILED_AT, FAILURE, OUTCOMES, WRITES, Deed, images, refused, rise

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._model.outcome import Outcome
    from holdfast._store.claim import ClaimedJob
    from tests.kit.workers import Connect

TAKEN = ClaimAnswer.taken_by_another_worker
DONE = ClaimAnswer.already_completed
CANCELLED = ClaimAnswer.cancelled
NOT_FOUND = ClaimAnswer.not_found


def reaped(zombie: Worker, other: Worker, lost: ClaimedJob) -> None:
    expire_leases(other.conn, [lost])
    assert [found.id for found in other.reap()] == [lost.id]


def taken(zombie: Worker, other: Worker, lost: ClaimedJob) -> None:
    reaped(zombie, other, lost)
    assert lost.id in [found.id for found in other.claim()]


def ended(outcome: Outcome) -> Callable[[Worker, Worker, ClaimedJob], None]:
    def end(zombie: Worker, other: Worker, lost: ClaimedJob) -> None:
        reaped(zombie, other, lost)
        other.end([found for found in other.claim() if found.id == lost.id], outcome)

    return end


def reaped_for_good(zombie: Worker, other: Worker, lost: ClaimedJob) -> None:
    other.conn.execute("UPDATE holdfast.job SET attempt = max_attempts WHERE id = %s", [lost.id])
    reaped(zombie, other, lost)
    assert statuses(other.conn)[lost.id] == "failed"


def called_off(zombie: Worker, other: Worker, lost: ClaimedJob) -> None:
    assert run_sync(other.conn, cancel_job(lost.id)) == "requested"
    reaped(zombie, other, lost)
    assert statuses(other.conn)[lost.id] == "cancelled"


def deleted(zombie: Worker, other: Worker, lost: ClaimedJob) -> None:
    other.conn.execute("DELETE FROM holdfast.job WHERE id = %s", [lost.id])


def completed_from_outside(zombie: Worker, other: Worker, lost: ClaimedJob) -> None:
    assert run_sync(other.conn, complete_chain(lost.chain_id, '"outside"')) == "completed"


def gone_on(zombie: Worker, other: Worker, lost: ClaimedJob) -> None:
    reaped(zombie, other, lost)
    again = [found for found in other.claim() if found.id == lost.id]
    other.end(again, Completed(None, job("next").as_json()))


def deleted_whole(zombie: Worker, other: Worker, lost: ClaimedJob) -> None:
    assert lost.chain_id in run_sync(other.conn, delete_chains([lost.chain_id], cascade=True))


def claimed_again(zombie: Worker, other: Worker, lost: ClaimedJob) -> None:
    """The same worker has the job again, under another token."""
    reaped(zombie, other, lost)
    assert lost.id in [found.id for found in zombie.claim()]


def given_back(zombie: Worker, other: Worker, lost: ClaimedJob) -> None:
    assert zombie.end([lost], OUTCOMES["released"]) == {lost.id: "pending"}


def token_reissued(zombie: Worker, other: Worker, lost: ClaimedJob) -> None:
    """Another worker holds the job under the very same token, as after a crash that the sequence did not survive."""
    reaped(zombie, other, lost)
    other.conn.execute("SELECT setval('holdfast.token', %s, false)", [lost.token])
    assert [found.token for found in other.claim() if found.id == lost.id] == [lost.token]


FATES: dict[str, tuple[Callable[[Worker, Worker, ClaimedJob], None], ClaimAnswer]] = {
    "taken by another worker": (taken, TAKEN),
    "reaped and not taken yet": (reaped, TAKEN),
    "completed elsewhere": (ended(OUTCOMES["completed"]), DONE),
    "cancelled elsewhere": (ended(OUTCOMES["cancelled"]), CANCELLED),
    "failed elsewhere": (ended(OUTCOMES["failed"]), TAKEN),
    "called off and reaped": (called_off, CANCELLED),
    "failed by the reaper": (reaped_for_good, TAKEN),
    "deleted": (deleted, NOT_FOUND),
    "deleted with its chain": (deleted_whole, NOT_FOUND),
    "completed from outside": (completed_from_outside, DONE),
    "completed elsewhere, and followed by another": (gone_on, DONE),
    "claimed again by the same worker": (claimed_again, TAKEN),
    "given back by the same worker": (given_back, TAKEN),
    "token reissued to another worker": (token_reissued, TAKEN),
}


@pytest.fixture
def zombie(connect: Connect) -> Worker:
    return Worker(connect())


@pytest.fixture
def other(connect: Connect) -> Worker:
    return Worker(connect())


def claim_one(worker: Worker, order_key: OrderKey | None) -> ClaimedJob:
    """Claim a job, with a failed step; of an order key, the head, with another parked behind it."""
    first, *_ = enqueue(worker.conn, *[job(order_key=order_key) for _ in range(2 if order_key else 1)])
    (claimed,) = worker.claim()
    assert claimed.id == first
    failed = "INSERT INTO holdfast.step (job_id, at, state, name) VALUES (%s, now(), 'failed', %s)"
    worker.conn.execute(failed, [first, FAILED_AT[0]])
    return claimed


@pytest.mark.nightly(
    daily=[
        "completed elsewhere-keyed",
        "taken by another worker-keyed, blocking",
        "token reissued to another worker-plain",
    ]
)
@pytest.mark.parametrize(
    "order_key", [None, OrderKey("a"), OrderKey("a", on_failure="block")], ids=["plain", "keyed", "keyed, blocking"]
)
@pytest.mark.parametrize("fate", FATES)
def test_a_zombie_changes_nothing(zombie: Worker, other: Worker, fate: str, order_key: OrderKey | None) -> None:
    lost = claim_one(zombie, order_key)
    happen, reason = FATES[fate]
    happen(zombie, other, lost)
    assert rise(zombie.conn, zombie.id, lost) == refused(reason)


@pytest.mark.nightly(daily=["taken by another worker"])
@pytest.mark.parametrize("fate", FATES)
def test_a_zombie_releases_no_blocked_job(zombie: Worker, other: Worker, fate: str) -> None:
    """Of a chain that others wait for, and that waited for another."""
    (before,) = enqueue(zombie.conn, job())
    zombie.end(zombie.claim(), Completed("1"))
    (first,) = enqueue(zombie.conn, job(after=[before]))
    enqueue(zombie.conn, job("waits", after=[first]), job("waits", after=[first], if_blocker_fails="run"))
    (lost,) = zombie.claim()
    happen, reason = FATES[fate]
    happen(zombie, other, lost)
    assert rise(zombie.conn, zombie.id, lost) == refused(reason)


@pytest.mark.nightly
@pytest.mark.parametrize("order_key", [None, OrderKey("a")], ids=["plain", "keyed"])
def test_another_workers_name_does_not_help(zombie: Worker, other: Worker, order_key: OrderKey | None) -> None:
    held = claim_one(other, order_key)
    assert rise(zombie.conn, zombie.id, held) == refused(TAKEN)


@pytest.mark.nightly
@pytest.mark.parametrize("order_key", [None, OrderKey("a")], ids=["plain", "keyed"])
def test_a_claim_that_was_rolled_back_holds_nothing(zombie: Worker, order_key: OrderKey | None) -> None:
    enqueue(zombie.conn, job(order_key=order_key))
    with zombie.conn.transaction(force_rollback=True):
        (lost,) = zombie.claim()
    assert rise(zombie.conn, zombie.id, lost) == refused(TAKEN)


@pytest.mark.nightly
@pytest.mark.parametrize("how", OUTCOMES)
@pytest.mark.parametrize("careful", [False, True], ids=["short", "careful"])
@pytest.mark.parametrize("old_first", [False, True], ids=["new first", "old first"])
def test_old_and_new_token_in_one_batch(zombie: Worker, how: str, careful: bool, old_first: bool) -> None:
    old = claim_one(zombie, None)
    claimed_again(zombie, zombie, old)
    new = old._replace(token=number(zombie.conn, "SELECT lock_token FROM holdfast.job"), attempt=2)
    endings = [Ending(old, Failed(FAILURE)), Ending(new, OUTCOMES[how])]
    if how == "completed":
        endings[0] = Ending(old, Completed('"old"'))
    answers = run_sync(zombie.conn, finish_jobs(zombie.id, endings if old_first else endings[::-1], careful=careful))
    became = {"completed": "completed", "failed": "failed", "cancelled": "cancelled"}.get(how, "pending")
    assert answers.get(Held(new.id, new.token), "completed") == became
    assert answers[Held(old.id, old.token)] == {"completed": DONE, "cancelled": CANCELLED}.get(became, TAKEN)
    assert statuses(zombie.conn) == {old.id: became}
    if how == "completed":
        assert number(zombie.conn, "SELECT result::text FROM holdfast.job_history") == '"zombie"'


@pytest.mark.nightly
@pytest.mark.parametrize("old_first", [False, True], ids=["new first", "old first"])
def test_old_and_new_token_in_one_renewal(zombie: Worker, old_first: bool) -> None:
    old = claim_one(zombie, None)
    claimed_again(zombie, zombie, old)
    new = number(zombie.conn, "SELECT lock_token FROM holdfast.job")
    held = {Held(old.id, token): Lease(hours * 3600) for token, hours in ((old.token, 9), (new, 2))}
    if not old_first:
        held = dict(reversed(held.items()))
    assert run_sync(zombie.conn, renew_leases(zombie.id, held)) == {Held(old.id, old.token): TAKEN}
    assert number(zombie.conn, "SELECT locked_until < now() + interval '3 hours' FROM holdfast.job")


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["completed", "failed", "retried"])
@pytest.mark.parametrize("careful", [False, True], ids=["short", "careful"])
def test_the_same_claim_ended_twice_in_one_batch_ends_once(zombie: Worker, how: str, careful: bool) -> None:
    claimed = claim_one(zombie, None)
    endings = [Ending(claimed, OUTCOMES[how]), Ending(claimed, OUTCOMES[how])]
    run_sync(zombie.conn, finish_jobs(zombie.id, endings, careful=careful))
    rows = {table: len(found) for table, found in images(zombie.conn).items()}
    assert rows["job"] + rows["job_history"] + rows["job_failed"] == 1
    assert rows["attempt"] == (how != "completed")


def test_the_living_are_not_refused(zombie: Worker) -> None:
    """The writes that zombies are denied do have an effect when the holder makes them, and the images show it."""
    for name in WRITES:
        held = claim_one(zombie, None)
        with zombie.conn.transaction(force_rollback=True):
            deed = next(deed for deed in rise(zombie.conn, zombie.id, held) if deed.write == "renew_leases")
            assert deed == Deed("renew_leases", None, ["job"])
        before = images(zombie.conn)
        run_sync(zombie.conn, WRITES[name](zombie.id, held))
        assert images(zombie.conn) != before
        zombie.conn.execute("DELETE FROM holdfast.job")


POSTS = " AND j.lock_token = token AND j.locked_by = worker"
# A fence without one of its posts, and the fate that shows the gap.
GAPS: dict[str, tuple[str, list[tuple[str, str]], str]] = {
    "renewed by id and holder": (
        "renew_leases",
        [
            (" ON j.id = g.id AND j.lock_token = g.token", " ON j.id = g.id"),
            (" AND g.token = j.lock_token RETURNING", " RETURNING"),
        ],
        "claimed again by the same worker",
    ),
    "renewed by id and token": (
        "renew_leases",
        [("WHERE j.id = ANY (ids) AND j.locked_by = worker", "WHERE j.id = ANY (ids)")],
        "token reissued to another worker",
    ),
    "completed by id and holder": (
        "complete_jobs",
        [(" AND j.lock_token = tokens[1]", ""), (" AND j.lock_token = coalesce(g.token, tokens[1])", "")],
        "claimed again by the same worker",
    ),
    "completed by id and token": (
        "complete_jobs",
        [
            (" AND j.lock_token = tokens[1] AND j.locked_by = worker", " AND j.lock_token = tokens[1]"),
            (
                " AND j.lock_token = coalesce(g.token, tokens[1]) AND j.locked_by = worker",
                " AND j.lock_token = coalesce(g.token, tokens[1])",
            ),
        ],
        "token reissued to another worker",
    ),
    "settled by id and holder": (
        "settle_batch",
        [(" AND j.lock_token = g.token AND j.locked_by = g.holder", " AND j.locked_by = g.holder")],
        "claimed again by the same worker",
    ),
    "reported by id and holder": (
        "report_progress",
        [(" ON j.id = g.id AND j.lock_token = g.token", " ON j.id = g.id")],
        "claimed again by the same worker",
    ),
    "reported by id and token": (
        "report_progress",
        [("WHERE j.id = ANY (ids) AND j.locked_by = worker", "WHERE j.id = ANY (ids)")],
        "token reissued to another worker",
    ),
    "settled by id and token": (
        "settle_batch",
        [(" AND j.lock_token = g.token AND j.locked_by = g.holder", " AND j.lock_token = g.token")],
        "token reissued to another worker",
    ),
    "recorded by id and token": (
        "save_steps",
        [(" AND j.locked_by = worker AND", " AND")],
        "token reissued to another worker",
    ),
    "recorded by id and holder": (
        "save_steps",
        [
            (" AND j.lock_token IN (SELECT g.token FROM unnest(given) AS g WHERE g.id = j.id)", ""),
            (
                " ON h.id = g.id AND h.token = g.token\n    WHERE g.name IS NOT NULL AND NOT",
                " ON h.id = g.id\n    WHERE g.name IS NOT NULL AND NOT",
            ),
        ],
        "claimed again by the same worker",
    ),
    **{
        f"{function} without its {post}": (function, [(POSTS, POSTS.replace(f" AND j.{post}", ""))], fate)
        for function in ("save_step", "forget_failures", "hold_story", "count_attempts_anew")
        for post, fate in (
            ("lock_token = token", "claimed again by the same worker"),
            ("locked_by = worker", "token reissued to another worker"),
        )
    },
}


@pytest.mark.parametrize("gap", GAPS)
def test_a_gap_in_the_fence_is_seen(zombie: Worker, other: Worker, gap: str) -> None:
    function, changes, fate = GAPS[gap]
    open_trap(zombie.conn, function, *changes)
    lost = claim_one(zombie, None)
    FATES[fate][0](zombie, other, lost)
    assert any(deed.changed for deed in rise(zombie.conn, zombie.id, lost))


# Every function that writes to holdfast.job, or what stories record: the zombies have tried it, or it needs no claim.
COVERED = {
    "renew_leases",
    "complete_jobs",
    "settle_batch",
    "report_progress",
    "save_steps",
    "save_step",
    "forget_failures",
    "take_message",
    "gather_jobs",
    "count_attempts_anew",
}
BEFORE_OR_WITHOUT_A_CLAIM = {
    "feed_jobs": "makes jobs of events",
    "enqueue": "makes jobs",
    "enqueue_jobs": "makes jobs, and changes those that nobody has claimed",
    "enqueue_limited_jobs": "makes jobs",
    "enqueue_members": "makes jobs, and lets the job after them, which nobody has claimed, wait for more",
    "enqueue_unique_jobs": "the same; of a running job it takes the unique key, for which no worker answers",
    "claim_jobs": "makes the claim",
    "claim_suspects": "makes the claim",
    "take_order_heads": "part of the claim",
    "promote_jobs": "part of the claim, of jobs that wait",
    "take_limited": "part of the claim",
    "promote_limited": "promotes what is parked",
    "mend_limits": "makes due what nobody has claimed, and promotes what is parked",
    "pass_promotion": "of jobs that nobody has claimed, whose rows its callers have locked",
    "cancel_job": "ends what has not started; a running job is only asked to stop",
    "resume_order_key": "promotes what is parked",
    "replay_job": "makes a job",
    "reschedule_job": "gives a job that nobody has claimed another time",
    "hold_chains": "marks the live job of a chain that is waited for; whoever holds it still does",
    "set_back_jobs": "makes jobs due that nobody has claimed",
    "shorten_leases": "corrects leases that end too far ahead; whoever holds them still does",
    "update_waiters": "counts down, and lets go, what is blocked",
    "count_members": "the same, of groups",
    "leave_jobs": "part of settle_batch, which has locked what is its own",
    "enqueue_on_failure": "part of settle_batch, for what is its own",
    "give_back_jobs": "the same",
    "rouse_stories": "the same: stories that it has just given back",
    "delete_steps": "the same",
    "mark_stories": "part of save_steps and others, which have locked what is their own",
    "await_children": "the same",
    "restore_steps": "of a job that replay_job makes",
    "send_message": "adds a message, and marks its story, or makes it due; whoever holds it still does",
    "take_job": "takes a job from whoever has it, for a person who ends it in the same transaction",
}
WRITING = re.compile(
    r"\b(?:INSERT\s+INTO|UPDATE|DELETE\s+FROM|MERGE\s+INTO|TRUNCATE)\s+(?:ONLY\s+)?holdfast\.(?:job|step|message)\b",
    re.IGNORECASE,
)


BY_THE_TESTING_KIT = {
    "catch_up": "what is due while now() stands still, before any claim",
    "advance_jobs": "moves time for the jobs of a test",
    "lend_job": "a pending job, before its claim",
    "return_job": "what was lent: fenced where it is claimed by then",
}


PLAIN_STATEMENTS = {
    "claim_named": "makes the claim",
    "claim_plain": "makes the claim",
    "complete_plain": "fenced by id, token and holder: tests/store/test_plain_finish.py",
}


def test_every_writer_is_known(connect: Connect) -> None:
    functions = (
        connect()
        .execute("SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace")
        .fetchall()
    )
    writers = {name for name, source in functions if WRITING.search(source)}
    assert writers <= COVERED | BEFORE_OR_WITHOUT_A_CLAIM.keys()
    assert writers >= COVERED
    assert {name.partition(",")[0] for name in WRITES} == COVERED
    past = {name for name, sql in statements().items() if WRITING.search(sql)}
    assert past == BY_THE_TESTING_KIT.keys() | PLAIN_STATEMENTS.keys(), "past the functions"


def test_nothing_writes_in_a_way_the_check_does_not_see(connect: Connect) -> None:
    """Dynamic SQL, or a table named another way, would hide a writer: it looks, or it keeps partitions."""
    functions = (
        connect()
        .execute("SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace")
        .fetchall()
    )
    keeping = r"(?:CREATE|ALTER|DROP|LOCK) TABLE|UPDATE holdfast\.%1\$I SET late = NULL"
    hidden = re.compile(rf"\bEXECUTE\b(?!\s+format\((?:'|\$look\$\s*)(?:{keeping}|WITH|SELECT)\b)", re.IGNORECASE)
    assert not [name for name, source in functions if hidden.search(source)]
    looking = re.compile(r"\$look\$(.*?)\$look\$", re.DOTALL)
    looks = [look for _, source in functions for look in looking.findall(source)]
    assert looks
    assert not [look for look in looks if WRITING.search(look) or re.search(r"\b(?:INSERT|UPDATE|DELETE)\b", look)]
    unqualified = re.compile(r"\b(?:INSERT\s+INTO|DELETE\s+FROM|UPDATE)\s+(?:ONLY\s+)?job\b", re.IGNORECASE)
    assert not [name for name, source in functions if unqualified.search(source)]
