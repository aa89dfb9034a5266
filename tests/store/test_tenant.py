from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast._drivers import run_sync
from holdfast._store.claim import Floors, Shards, claim_jobs
from holdfast._store.search import replay_job
from tests.kit.limits import set_limits
from tests.kit.tenants import of_tenant, set_weights, tenants
from tests.kit.workers import FAILED, RETRIED, Worker, drain, enqueue, fill, job, number

if TYPE_CHECKING:
    from tests.kit.workers import Connect


@pytest.fixture
def worker(connect: Connect) -> Worker:
    return Worker(connect(), "k", "m")


def counted(worker: Worker, claims: int, slots: int) -> Counter[str | None]:
    """Claim and complete so often; return how many jobs of each tenant were claimed."""
    taken: Counter[str | None] = Counter()
    for _ in range(claims):
        jobs = worker.claim(slots)
        taken.update(tenants(worker.conn, jobs))
        worker.end(jobs)
    return taken


def test_tenants_take_turns(worker: Worker) -> None:
    enqueue(worker.conn, *[of_tenant("a") for _ in range(50)], *[of_tenant(t) for t in "bcbc"])
    assert tenants(worker.conn, worker.claim(6)) == ["a", "a", "b", "b", "c", "c"]


def test_within_a_tenant_the_oldest_is_first(worker: Worker) -> None:
    made = enqueue(worker.conn, *[of_tenant(t) for t in "abababab"])
    assert sorted(each.id for each in worker.claim(4)) == made[:4]


@pytest.mark.parametrize("slots", [1, 2, 3, 7, 20])
def test_each_round_goes_on_where_the_last_claim_ended(worker: Worker, slots: int) -> None:
    enqueue(worker.conn, *[of_tenant(f"t{n % 10}") for n in range(600)])
    taken = counted(worker, 200 // slots, slots)
    assert max(taken.values()) - min(taken.values()) <= 1
    assert sum(taken.values()) == 200 // slots * slots


@pytest.mark.parametrize("slots", [1, 3, 10, 26])
def test_weights(worker: Worker, slots: int) -> None:
    weights = {"a": 1, "b": 2, "c": 4, "d": 8}
    set_weights(worker.conn, **weights)
    enqueue(worker.conn, *[of_tenant(t) for t in "abcd" for _ in range(200)])
    taken = counted(worker, 240 // slots, slots)
    for tenant, weight in weights.items():
        assert taken[tenant] == pytest.approx(sum(taken.values()) * weight / 15, abs=weight)


def test_a_changed_weight_is_in_force_at_once(worker: Worker) -> None:
    enqueue(worker.conn, *[of_tenant(t) for t in "ab" for _ in range(50)])
    set_weights(worker.conn, a=9)
    assert counted(worker, 1, 10)["a"] == 9
    set_weights(worker.conn, a=1)
    assert counted(worker, 1, 10)["a"] == 5
    assert number(worker.conn, "SELECT count(*) FROM holdfast.tenant") == 0


@pytest.mark.parametrize(
    ("tenant", "weight", "fault"),
    [("a", 0, "weight: a number from 1 to 1000 expected, got 0"), ("a", None, "weight: .* got null"),
     ("", 2, "tenant: 1 to 500 bytes"), (None, 2, "tenant: 1 to 500 bytes")],
)  # fmt: skip
def test_unfit_weights_are_refused(worker: Worker, tenant: str | None, weight: int | None, fault: str) -> None:
    with pytest.raises(psycopg.Error, match=fault):
        worker.conn.execute("SELECT holdfast.set_weight(%s, %s)", [tenant, weight])


def test_what_one_does_not_use_others_get(worker: Worker) -> None:
    enqueue(worker.conn, *[of_tenant("a") for _ in range(100)], of_tenant("b"), of_tenant("c"))
    assert tenants(worker.conn, worker.claim(50)) == ["a"] * 48 + ["b", "c"]


def test_the_kind_has_the_places_that_it_has_without_tenants(worker: Worker) -> None:
    """Tenants take turns among each other; between kinds the oldest is first."""
    made = enqueue(worker.conn, *[job("m") if n % 2 else of_tenant("a") for n in range(40)], of_tenant("b"))
    claimed = worker.claim(10)
    assert sorted(each.id for each in claimed if each.kind == "m") == made[1:11:2]
    assert tenants(worker.conn, [each for each in claimed if each.kind == "k"]) == ["a"] * 4 + ["b"]


def test_jobs_without_a_tenant_in_the_same_lane(worker: Worker) -> None:
    enqueue(worker.conn, *[of_tenant(None if n % 2 else "a") for n in range(40)], of_tenant("b"))
    assert tenants(worker.conn, worker.claim(10)) == ["a"] * 4 + ["b"] + [None] * 5


def test_urgent_jobs_of_any_tenant_are_first(worker: Worker) -> None:
    enqueue(worker.conn, of_tenant("b"), *[of_tenant("a", priority=1) for _ in range(5)])
    assert tenants(worker.conn, worker.claim(5)) == ["a"] * 5


def test_a_small_tenant_is_found_behind_floors(worker: Worker) -> None:
    """Claims begin where the last one ended, and small tenants are far beyond the backlog's age."""
    fill(worker.conn, 2000, tenant="'big'")
    floors = Floors()
    for _ in range(40):
        (small,) = enqueue(worker.conn, of_tenant("small"))
        claim = run_sync(worker.conn, claim_jobs(worker.id, {"default": 4}, worker.leases, floors=floors, reach=0))
        assert small in [each.id for each in claim.jobs]
        assert len(claim.jobs) == 4
        floors.advance(claim.jobs, reach=0, took=0, begins=claim.begins, turns=claim.turns, promoted=claim.promoted)
        worker.end(claim.jobs)


def test_shards(worker: Worker) -> None:
    enqueue(worker.conn, *[of_tenant(f"t{n % 7}") for n in range(350)])
    claimed = worker.claim(14, shards=Shards(1, 4))
    assert len(claimed) == 14
    assert set(Counter(tenants(worker.conn, claimed)).values()) == {2}
    assert all(16 <= each.id & 63 < 32 for each in claimed)


def test_all_run_in_the_end(worker: Worker) -> None:
    made = enqueue(
        worker.conn,
        *[of_tenant(f"t{n % 13}", kind="km"[n % 2], priority=4 + n % 3) for n in range(300)],
        *[of_tenant("late", delay=60) for _ in range(3)],
        *[of_tenant("x", order_key="o") for _ in range(20)],
    )
    assert sorted(drain(worker)) == made


def test_order_keys_and_tenants(worker: Worker) -> None:
    made = enqueue(worker.conn, *[of_tenant("ab"[n % 2], order_key=f"o{n % 2}") for n in range(8)])
    done = drain(worker)
    assert sorted(done) == made
    for tenant in (0, 1):
        own = [each for each in done if (each - made[0]) % 2 == tenant]
        assert own == sorted(own)


def test_a_limit_by_tenant(worker: Worker) -> None:
    set_limits(worker.conn, two=2)
    enqueue(worker.conn, *[of_tenant(t, f"two:{t}") for t in "aaaaabbc"])
    assert tenants(worker.conn, worker.claim()) == ["a", "a", "b", "b", "c"]


@pytest.mark.parametrize("slots", [1, 3, 50])
def test_under_a_limit_that_they_share_tenants_take_turns(worker: Worker, slots: int) -> None:
    """Also those that come when a thousand of another are parked."""
    set_limits(worker.conn, three=3)
    enqueue(worker.conn, *[of_tenant("big", "three") for _ in range(500)])
    for _ in range(5):
        worker.end(worker.claim(slots))
    enqueue(worker.conn, *[of_tenant(f"t{n % 4}", "three") for n in range(40)])
    taken: Counter[str | None] = Counter()
    running = worker.claim(slots)
    while sum(taken.values()) < 50:
        assert len(running) <= 3
        taken.update(tenants(worker.conn, running))
        worker.end(running)
        running = worker.claim(slots)
    assert min(taken.values()) >= 8, taken
    assert len(taken) == 5


@pytest.mark.parametrize("limits", [(), ("one",)])
def test_a_claim_that_was_rolled_back_moves_no_place(worker: Worker, limits: tuple[str, ...]) -> None:
    set_limits(worker.conn, one=1)
    enqueue(worker.conn, *[of_tenant(t, *limits) for t in "aabb"])
    with worker.conn.transaction(force_rollback=True):
        first = tenants(worker.conn, worker.claim(1))
    assert len(first) == 1
    assert counted(worker, 4, 1) == {"a": 2, "b": 2}


def test_weights_hold_under_a_shared_limit(worker: Worker) -> None:
    set_limits(worker.conn, one=1)
    set_weights(worker.conn, a=3)
    enqueue(worker.conn, *[of_tenant(t, "one") for t in "ab" for _ in range(100)])
    taken = counted(worker, 40, 5)
    assert taken["a"] == pytest.approx(30, abs=3)


@pytest.mark.parametrize("outcome", [FAILED, RETRIED])
def test_a_job_that_comes_back_keeps_its_tenant(worker: Worker, outcome: object) -> None:
    (made,) = enqueue(worker.conn, of_tenant("a"))
    worker.end(worker.claim(), outcome)  # type: ignore[arg-type]
    if outcome is FAILED:
        assert run_sync(worker.conn, replay_job(made))
    assert number(worker.conn, "SELECT tenant FROM holdfast.job") == "a"


def test_the_next_job_of_a_chain_has_its_own_tenant(worker: Worker) -> None:
    (first,) = enqueue(worker.conn, of_tenant("a"))
    (claimed,) = worker.claim()
    complete = "SELECT holdfast.complete_job(%s, %s, %s, next => %s)"
    bad = json.dumps({"kind": "k", "payload": {}, "tenant": ""})
    with pytest.raises(psycopg.Error, match="next, tenant: 1 to 500 bytes"):
        worker.conn.execute(complete, [first, claimed.token, worker.id, bad])
    following = json.dumps({"kind": "k", "payload": {}, "tenant": "b"})
    worker.conn.execute(complete, [first, claimed.token, worker.id, following])
    assert number(worker.conn, "SELECT tenant FROM holdfast.job") == "b"


def test_from_sql(worker: Worker) -> None:
    worker.conn.execute("SELECT holdfast.enqueue('k', tenant => 'a')")
    assert number(worker.conn, "SELECT tenant FROM holdfast.job") == "a"
    for call in ("holdfast.enqueue('k', tenant => '')", """holdfast.enqueue_jobs('[{"kind": "k", "tenant": ""}]')"""):
        with pytest.raises(psycopg.Error, match="tenant: 1 to 500 bytes of text expected"):
            worker.conn.execute(f"SELECT {call}")
