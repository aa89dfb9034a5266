from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from labs.chaos.faults.clock import FAULTS
from tests.labs.chaos.stage import recovered, rows, stage
from tools import faketime

if TYPE_CHECKING:
    from labs.chaos.fault import Fault

pytestmark = pytest.mark.nightly


DONE_BY = """
    SELECT count(*) FROM holdfast.job_history h JOIN holdfast.worker w ON w.id = h.worker_id WHERE w.name = %s
"""


@pytest.mark.parametrize("off", [7_200, -36_000])
def test_the_wall_clock_is_off_and_the_monotonic_one_is_true(off: float) -> None:
    output = subprocess.run(
        [
            sys.executable,
            "-c",
            "import time, threading; threading.Event().wait(0.1); print(time.time(), time.monotonic())",
        ],
        env=os.environ | faketime.environment(off),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert float(output[0]) - time.time() == pytest.approx(off, abs=5)
    assert float(output[1]) - time.monotonic() == pytest.approx(0, abs=5)


@pytest.mark.prove
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_a_worker_whose_clock_is_wrong(fault: Fault) -> None:
    """It works like every other, and nothing of its own time is written."""
    async with stage(replicas=1) as site:
        async with fault.strike(site, random.Random(1)):
            name = site.fleet.replicas[0].name
            assert site.fleet.replicas[0].environment["FAKETIME"]
            assert (await rows(site, DONE_BY, name))[0][0] > 0
            for table, column in (("job_history", "finished_at"), ("worker", "heartbeat_at"), ("worker", "started_at")):
                off = f"SELECT max(abs(extract(epoch FROM clock_timestamp() - {column})))::float FROM holdfast.{table}"
                assert (await rows(site, off))[0][0] < 60
        await recovered(site, fault)
