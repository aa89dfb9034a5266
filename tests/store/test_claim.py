from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast._drivers import run_sync
from holdfast._model.errors import WrongIsolation
from holdfast._model.work import Lease
from holdfast._store.claim import SHARDS, WINDOWS, Floors, Shards, Windows, claim_jobs
from holdfast._store.search import cancel_job
from tests.kit.mutation import let_claims_take_their_time
from tests.kit.workers import CANCELLED, RETRIED, Worker, enqueue, fill, job, number, statuses

if TYPE_CHECKING:
    from psycopg import Connection

    from tests.kit.workers import Connect


def stagger(conn: Connection[Any]) -> None:
    """Let jobs have become due a second apart, in the order of their ids."""
    conn.execute("UPDATE holdfast.job SET available_at = now() - interval '1 hour' + id * interval '1 second'")


def test_what_a_claimed_job_says(connect: Connect) -> None:
    conn = connect()
    worker = Worker(conn, "k", queues=["q"])
    (first,) = enqueue(conn, job("k", '{"a": 1}', queue="q", priority=2, headers={"h": "v"}, max_attempts=7))
    (claimed,) = worker.claim()
    assert (claimed.id, claimed.queue, claimed.kind, claimed.payload, claimed.payload_version) == (
        first,
        "q",
        "k",
        '{"a": 1}',
        1,
    )
    assert (claimed.attempt, claimed.max_attempts, claimed.priority, claimed.chain_id) == (1, 7, 2, first)
    assert (claimed.order_key, claimed.expired, claimed.cancelled) == (None, False, False)
    assert claimed.read_headers() == {"h": "v"}
    assert claimed.available_at == number(conn, "SELECT available_at FROM holdfast.job")
    assert conn.execute("SELECT status::text, locked_by, lock_token, attempt FROM holdfast.job").fetchone() == (
        *("processing", worker.id, claimed.token, 1),
    )


def test_a_claim_lets_others_refer_to_its_jobs(connect: Connect) -> None:
    """A foreign key of the user's own takes this lock when it refers to a job; FOR UPDATE would make it wait."""
    worker, user = Worker(connect()), connect()
    (first,) = enqueue(worker.conn, job())
    with worker.conn.transaction():
        assert len(worker.claim()) == 1
        with user.transaction():
            assert number(user, "SELECT id FROM holdfast.job WHERE id = %s FOR KEY SHARE NOWAIT", first) == first


def test_one_token_for_a_call_and_a_larger_one_for_the_next(connect: Connect) -> None:
    worker = Worker(connect())
    enqueue(worker.conn, *[job() for _ in range(6)])
    first, second = worker.claim(3), worker.claim(3)
    assert len({claimed.token for claimed in first}) == 1
    assert first[0].token < second[0].token


def test_nothing_to_do_takes_no_token(connect: Connect) -> None:
    worker = Worker(connect())
    newest = "SELECT last_value FROM holdfast.token"
    before = number(worker.conn, newest)
    assert worker.claim() == []
    assert number(worker.conn, newest) == before


@pytest.mark.parametrize("kinds", [1, 3, 10])
def test_the_urgent_first_then_the_oldest_across_kinds(connect: Connect, kinds: int) -> None:
    worker = Worker(connect(), *(f"k{n}" for n in range(kinds)))
    for level in (5, 9, 0, 5, 3):
        enqueue(worker.conn, *[job(f"k{n % kinds}", priority=level) for n in range(20)])
    stagger(worker.conn)
    order = worker.conn.execute("SELECT id FROM holdfast.job ORDER BY priority, available_at, id").fetchall()
    expected = [row[0] for row in order]
    taken = 0
    for slots in (1, 7, 30, 100):
        batch = {claimed.id for claimed in worker.claim(slots)}
        assert batch == set(expected[taken : taken + slots]), f"{slots} slots"
        taken += len(batch)
    assert taken == 100


def test_oldest_first_though_the_kinds_are_unequal(connect: Connect) -> None:
    """One kind has nearly everything that is old, another what is new, a third one single job in between."""
    worker = Worker(connect(), "many", "few", "one")
    let_claims_take_their_time(worker.conn)
    enqueue(worker.conn, *[job("many") for _ in range(300)], job("one"), *[job("few") for _ in range(50)])
    stagger(worker.conn)
    expected = [row[0] for row in worker.conn.execute("SELECT id FROM holdfast.job ORDER BY available_at").fetchall()]
    taken = 0
    for slots in (100, 100, 100, 20, 31):
        assert {claimed.id for claimed in worker.claim(slots)} == set(expected[taken : taken + slots])
        taken += slots


def test_each_queue_has_its_own_slots(connect: Connect) -> None:
    worker = Worker(connect(), queues=["a", "b", "c"])
    for queue in ("a", "b", "c", "d"):
        enqueue(worker.conn, *[job(queue=queue) for _ in range(10)])
    claimed = worker.claim({"a": 3, "b": 0, "c": 20})
    queues = [one.queue for one in claimed]
    assert {queue: queues.count(queue) for queue in "abcd"} == {"a": 3, "b": 0, "c": 10, "d": 0}


def test_a_paused_queue_gives_nothing(connect: Connect) -> None:
    worker = Worker(connect(), queues=["a", "b"])
    enqueue(worker.conn, job(queue="a"), job(queue="b"))
    worker.conn.execute("INSERT INTO holdfast.queue (name, paused) VALUES ('a', true), ('b', false)")
    assert [claimed.queue for claimed in worker.claim()] == ["b"]
    worker.conn.execute("UPDATE holdfast.queue SET paused = false")
    assert [claimed.queue for claimed in worker.claim()] == ["a"]


def test_only_what_is_due_and_of_the_kinds_served(connect: Connect) -> None:
    worker = Worker(connect(), "k", "m")
    enqueue(worker.conn, job("k", delay=timedelta(hours=1)), job("other"))
    assert worker.claim() == []
    (due,) = enqueue(worker.conn, job("m"))
    assert [claimed.id for claimed in worker.claim()] == [due]


def test_two_workers_never_take_the_same(connect: Connect) -> None:
    one, other = Worker(connect()), Worker(connect())
    enqueue(one.conn, *[job() for _ in range(10)])
    with one.conn.transaction():
        first = one.claim(4)
        second = other.claim(10)
    assert len(first) == 4
    assert len(second) == 6
    assert {claimed.id for claimed in first}.isdisjoint(claimed.id for claimed in second)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 64])
def test_shards_are_disjoint_and_complete(connect: Connect, count: int) -> None:
    worker = Worker(connect())
    enqueue(worker.conn, *[job() for _ in range(128)], *[job(order_key=f"key {n}") for n in range(50)])
    found = [{claimed.id for claimed in worker.claim(500, shards=Shards(index, count))} for index in range(count)]
    assert sum(map(len, found)) == len(set[int]().union(*found)) == 178
    assert all(found[index] for index in range(count)), "each has its part"
    spans = [(Shards(index, count).first, Shards(index, count).last) for index in range(count)]
    assert [shard for first, last in spans for shard in range(first, last + 1)] == list(range(SHARDS))


def test_jobs_of_one_key_share_a_shard(connect: Connect) -> None:
    conn = connect()
    enqueue(conn, *[job(order_key="a") for _ in range(20)])
    assert number(conn, "SELECT count(DISTINCT shard) FROM holdfast.job") == 1


@pytest.mark.parametrize("wrong", [(-1, 2), (2, 2), (0, 0), (0, 65)])
def test_shards_that_do_not_exist(wrong: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="the count is 1 to 64"):
        Shards(*wrong)


@pytest.mark.parametrize("same", [True, False])
def test_leases_are_those_of_the_kind(connect: Connect, same: bool) -> None:
    worker = Worker(connect(), "a", "b", "c")
    leases = {"a": Lease(10), "b": Lease(10 if same else 1000), "c": Lease(10 if same else 0.5)}
    enqueue(worker.conn, *[job(kind) for kind in "cab"])
    with worker.conn.transaction():
        run_sync(worker.conn, claim_jobs(worker.id, {"default": 9}, leases))
        rows = worker.conn.execute("SELECT kind, extract(epoch FROM locked_until - now())::float FROM holdfast.job")
        assert dict(rows.fetchall()) == {kind: lease.seconds for kind, lease in leases.items()}


def test_an_expired_job_is_handed_out_as_such(connect: Connect) -> None:
    """Somebody must end it: its order key, its chain and its story wait for that."""
    worker = Worker(connect())
    fresh, late = enqueue(worker.conn, *[job(expires=timedelta(hours=1)) for _ in range(2)])
    worker.conn.execute("UPDATE holdfast.job SET expires_at = now() - interval '1 second' WHERE id = %s", [late])
    claimed = {one.id: one for one in worker.claim()}
    assert {number: one.expired for number, one in claimed.items()} == {fresh: False, late: True}
    assert worker.end([claimed[late]], CANCELLED) == {late: "cancelled"}
    assert statuses(worker.conn)[late] == "cancelled"


def test_a_job_called_off_in_its_key_is_handed_out_as_such(connect: Connect) -> None:
    worker = Worker(connect())
    (first,) = enqueue(worker.conn, job(order_key="a"))
    assert run_sync(worker.conn, cancel_job(first)) == "requested"
    assert [claimed.cancelled for claimed in worker.claim()] == [True]


def test_every_attempt_is_counted_at_the_claim(connect: Connect) -> None:
    worker = Worker(connect())
    enqueue(worker.conn, job(max_attempts=3))
    for attempt in (1, 2, 3):
        (claimed,) = worker.claim()
        assert claimed.attempt == attempt
        worker.end([claimed], RETRIED)
    assert worker.claim() == []
    assert list(statuses(worker.conn).values()) == ["failed"]


def test_floors_of_all_lanes_are_respected(connect: Connect) -> None:
    """A floor hides what is below it in its own lane, and in no other."""
    worker = Worker(connect(), "a", "b", queues=["p", "q"])
    for queue in ("p", "q"):
        for kind in ("a", "b"):
            for level in (0, 5, 9):
                fill(
                    worker.conn,
                    2,
                    kind=kind,
                    queue=queue,
                    priority=str(level),
                    available_at="now() - n * interval '1 minute'",
                )
    floors = Floors()
    newest = [claimed for claimed in worker.claim() if (claimed.queue, claimed.kind, claimed.priority) == ("q", "a", 5)]
    worker.conn.execute("UPDATE holdfast.job SET status = 'pending'")
    floors.advance(newest, reach=0.25, took=0)
    seen = [(claimed.queue, claimed.kind, claimed.priority) for claimed in worker.claim(floors=floors, reach=0.25)]
    assert seen.count(("q", "a", 5)) == 1
    assert len(seen) == 23


def test_a_claim_is_limited_in_total_and_begins_with_the_given_queue(connect: Connect) -> None:
    worker = Worker(connect(), queues=["a", "b", "c"])
    for queue in worker.queues:
        enqueue(worker.conn, *[job(queue=queue) for _ in range(4)])

    def queues(start: str) -> list[str]:
        slots = dict.fromkeys(worker.queues, 3)
        with worker.conn.transaction(force_rollback=True):
            claim = run_sync(worker.conn, claim_jobs(worker.id, slots, worker.leases, limit=5, start=start))
        return [claimed.queue for claimed in claim.jobs]

    assert queues("a") == ["a"] * 3 + ["b"] * 2
    assert queues("a\0") == ["b"] * 3 + ["c"] * 2
    assert queues("c") == ["c"] * 3 + ["a"] * 2
    assert queues("d") == queues("")


@pytest.mark.parametrize("scheduled", ["k", "other"])
def test_a_claim_says_when_the_next_is_due(connect: Connect, scheduled: str) -> None:
    worker = Worker(connect(), "k", "other")
    claim = claim_jobs(worker.id, {"default": 3}, worker.leases)
    assert run_sync(worker.conn, claim).next_due is None
    enqueue(worker.conn, job(scheduled, delay=timedelta(minutes=1)), job("foreign", delay=timedelta(seconds=1)))
    seconds = run_sync(worker.conn, claim).next_due
    assert seconds is not None
    assert 30 < seconds <= 60
    # Though something is due before it that another worker is taking.
    other = connect()
    enqueue(other, job("k"))
    with other.transaction():
        other.execute("SELECT FROM holdfast.job FOR UPDATE")
        found = run_sync(worker.conn, claim)
    assert found.jobs == []
    assert found.next_due == pytest.approx(seconds, abs=30)


def test_a_claim_that_took_jobs_says_it_too(connect: Connect) -> None:
    """Behind the one that it takes lies one that is due soon."""
    worker = Worker(connect(), "k", "other")
    claim = claim_jobs(worker.id, {"default": 3}, worker.leases)
    enqueue(worker.conn, job(), job(delay=timedelta(milliseconds=900)), job("other", delay=timedelta(minutes=1)))
    found = run_sync(worker.conn, claim)
    assert len(found.jobs) == 1
    assert found.next_due is not None
    assert found.next_due < 0.9
    worker.conn.execute("DELETE FROM holdfast.job WHERE kind = 'k'")
    enqueue(worker.conn, job())
    found = run_sync(worker.conn, claim)
    assert len(found.jobs) == 1
    assert found.next_due == pytest.approx(60, abs=30)


NAMES = ("a", "a\x01", "ab", "b", "é", "z")


@given(
    lanes=st.sets(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES), st.sampled_from([0, 5, 9])), max_size=20),
    queues=st.sets(st.sampled_from(NAMES), min_size=1),
    kinds=st.sets(st.sampled_from(NAMES), min_size=1),
    start=st.sampled_from(NAMES),
    claimed=st.integers(0, 3),
    many=st.booleans(),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
def test_every_lane_that_is_served_is_found(  # noqa: PLR0917 - what a walk depends on
    connect: Connect,
    lanes: set[tuple[str, str, int]],
    queues: set[str],
    kinds: set[str],
    start: str,
    claimed: int,
    many: bool,
) -> None:
    """Whatever lies between, with and without floors, kind by kind or from lane to lane."""
    with connect() as conn, conn.transaction(force_rollback=True):
        filler = [f"none{n}" for n in range(200)] if many else []
        worker = Worker(conn, *sorted(kinds), *filler, queues=sorted(queues))
        floors = Floors()
        for _ in range(2):
            for queue, kind, level in lanes:
                fill(conn, 1, queue=queue, kind=kind, priority=str(level), available_at="clock_timestamp()")
            conn.execute("UPDATE holdfast.job SET available_at = now()")
            expected = {lane for lane in lanes if lane[0] in queues and lane[1] in kinds}
            claim = run_sync(
                conn,
                claim_jobs(worker.id, dict.fromkeys(queues, 100), worker.leases, start=start, floors=floors, reach=0),
            )
            found = [(one.queue, one.kind, one.priority) for one in claim.jobs]
            assert sorted(found) == sorted(expected)
            floors.advance(claim.jobs[:claimed], reach=0, took=0)
            conn.execute("DELETE FROM holdfast.job")


STRETCHES = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),  # queue
        st.sampled_from(["k", "l"]),  # kind
        st.sampled_from([0, 5]),  # priority
        st.sampled_from([None, "x", "y", "each"]),  # order key; each: every job has its own
        st.integers(1, 30),  # jobs that became due one after another
    ),
    min_size=1,
    max_size=6,
)


@given(
    stretches=STRETCHES,
    slots=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    limit=st.integers(1, 30),
    windows=st.none() | st.builds(Windows, st.sampled_from([1, 2, 4, 8]), st.integers(0, WINDOWS - 1)),
    floors=st.none() | st.builds(Floors),
    held=st.booleans(),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_claim_takes_no_more_than_it_is_asked_for(  # noqa: PLR0917 - what a claim depends on
    connect: Connect,
    stretches: list[tuple[str, str, int, str | None, int]],
    slots: tuple[int, int],
    limit: int,
    windows: Windows | None,
    floors: Floors | None,
    held: bool,
) -> None:
    """Followers of an order key are parked, and others taken in their place: never more than those."""
    with connect() as conn, connect() as other, conn.transaction(force_rollback=True):
        if held:
            other.execute("SELECT pg_advisory_lock(hashtext('holdfast.order_key'), hashtext('y'))")
        worker = Worker(conn, "k", "l", queues=["a", "b"])
        for place, (queue, kind, level, key, jobs) in enumerate(stretches):
            fill(
                conn,
                jobs,
                queue=queue,
                kind=kind,
                priority=str(level),
                available_at=f"now() - interval '1 hour' + ({place * 100} + n) * interval '1 second'",
                order_key="NULL" if key is None else f"'{key}'" if key != "each" else f"'{place} ' || n",
                order_seq="NULL" if key is None else str(place * 100) + " + n",
            )
        for _ in range(3):
            wanted = dict(zip("ab", slots, strict=True))
            statement = claim_jobs(worker.id, wanted, worker.leases, limit=limit, windows=windows, floors=floors)
            claim = run_sync(conn, statement)
            if floors is not None:
                floors.advance(claim.jobs, reach=0, took=0)
            taken = Counter(one.queue for one in claim.jobs)
            assert taken.total() <= limit
            assert all(taken[queue] <= most for queue, most in wanted.items())
            keys = [one.order_key for one in claim.jobs if one.order_key is not None]
            assert len(keys) == len(set(keys))


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_claim_on_an_old_snapshot_is_refused(connect: Connect, level: str) -> None:
    """A finish there would not see what a claim has parked meanwhile, and strand the order key."""
    conn = connect()
    enqueue(conn, job(order_key="a"))
    strict = Worker(connect(options=f"-c default_transaction_isolation={level.replace(' ', chr(92) + ' ')}"))
    with pytest.raises(
        WrongIsolation, match=rf"this one is {level.upper()}: ALTER ROLE \w+ SET default_transaction_iso"
    ):
        strict.claim()
    assert list(statuses(conn).values()) == ["pending"]


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_transaction_that_claims_what_it_wrote_may_be_stricter(connect: Connect, level: str) -> None:
    """So do the users' own tests."""
    conn = connect()
    conn.execute(f"BEGIN ISOLATION LEVEL {level}".encode())
    worker = Worker(conn)
    first, _ = enqueue(conn, *[job(order_key="a")] * 2)
    conn.execute("UPDATE holdfast.job SET available_at = now()")
    assert [claimed.id for claimed in worker.claim()] == [first]
