from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._drivers import run_sync
from holdfast._store.chain import chain_ends, complete_chain
from holdfast._store.sleeper import forget_watcher, others_ended, watch_chains, watch_horizon
from tests.kit.workers import enqueue, job, number

if TYPE_CHECKING:
    from tests.kit.workers import Connect


def test_a_look_before_the_record_is_within_the_horizon(connect: Connect) -> None:
    """Also one that began after the record was written, and looked before it was committed."""
    watcher, other, conn = connect(autocommit=False), connect(autocommit=False), connect()
    (chain,) = enqueue(conn, job())
    run_sync(watcher, watch_chains("w", [chain]))
    assert run_sync(other, complete_chain(chain, "1")) == "completed"
    watcher.commit()
    horizon = run_sync(conn, watch_horizon())
    assert not run_sync(conn, others_ended(horizon.xmax))
    assert run_sync(conn, chain_ends([chain])) == {}
    other.commit()
    assert run_sync(conn, others_ended(horizon.xmax))
    assert run_sync(conn, chain_ends([chain])).keys() == {chain}


def test_a_later_look_notifies(connect: Connect) -> None:
    ear, conn = connect(), connect()
    ear.execute("LISTEN holdfast_watch_w")
    watched, other = enqueue(conn, job(), job())
    run_sync(conn, watch_chains("w", [watched]))
    horizon = run_sync(conn, watch_horizon())
    assert run_sync(conn, others_ended(horizon.xmax))
    for chain in (other, watched):
        run_sync(conn, complete_chain(chain))
    assert [notice.payload for notice in ear.notifies(timeout=5, stop_after=1)] == [f"ended {watched}"]
    run_sync(conn, forget_watcher("w"))
    assert number(conn, "SELECT count(*) FROM holdfast.watcher") == 0
