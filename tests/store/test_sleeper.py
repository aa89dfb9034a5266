from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._drivers import run_sync
from holdfast._store.sleeper import look_ahead, others_ended, record_sleep
from tests.kit.workers import enqueue, job

if TYPE_CHECKING:
    from tests.kit.workers import Connect


def test_a_look_before_the_record_is_within_the_horizon(connect: Connect) -> None:
    """Also one that began after the record was written, and looked before it was committed."""
    sleeper, other, conn = connect(autocommit=False), connect(autocommit=False), connect()
    run_sync(sleeper, record_sleep(7, ["default"], ["k"]))
    enqueue(other, job())
    sleeper.commit()
    horizon = run_sync(conn, look_ahead(None, ["default"], ["k"]))
    assert not run_sync(conn, others_ended(horizon.xmax))
    other.commit()
    assert run_sync(conn, others_ended(horizon.xmax))
