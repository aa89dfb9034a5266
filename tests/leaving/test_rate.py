"""How many jobs a second one mover moves, and that its transactions stay bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.traps.workers import fill

if TYPE_CHECKING:
    from tests.leaving.two import Two

PAYLOAD = """('{"text": "' || repeat('x', 100) || '"}')::json"""
SORTS = {
    "plain": {},
    "of a thousand keys": {"order_key": "'key' || n % 1000", "order_seq": "n"},
    "of one key": {"order_key": "'key'", "order_seq": "n"},
}


@pytest.mark.prove
@pytest.mark.parametrize("sort", SORTS)
def test_a_hundred_thousand_jobs_move(two: Two, sort: str, capsys: pytest.CaptureFixture[str]) -> None:
    fill(two.here.conn, 100_000, payload=PAYLOAD, **SORTS[sort])
    two.here.conn.execute("ANALYZE holdfast.job")
    tally = two.mover().move()
    assert (tally.arrived, two.here.live(), two.there.live()) == (100_000, 0, 100_000)
    assert two.here.value("SELECT max(cardinality(job_ids)) FROM holdfast.departure") <= 500
    with capsys.disabled():
        print(f"\n{sort}: {tally.arrived / tally.seconds:,.0f} jobs/s")  # noqa: T201 - the figure of this proof
