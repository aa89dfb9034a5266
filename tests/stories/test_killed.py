"""Stories on workers in processes of their own, which are killed at any moment."""

from __future__ import annotations

import random
import signal
from typing import TYPE_CHECKING

import pytest

from tests.engine import zombie_app
from tests.engine.zombie import Process
from tests.kit.waiting import after, until

if TYPE_CHECKING:
    from tests.kit.ledger import Ledger

SEED = 20_261_120
STORIES = 30
# A third one could meet a job that runs alone because of the two before, and make it a dead letter.
KILLS = 2


@pytest.mark.nightly
async def test_workers_that_are_killed_book_each_entry_once(ledger: Ledger, database: str) -> None:
    ledger.do("CREATE TABLE entry (story bigint NOT NULL, n bigint NOT NULL)")
    dice = random.Random(SEED)
    made = ledger.enqueue(*[zombie_app.story.new(number) for number in range(STORIES)])
    booked = 0
    for turn in range(KILLS):
        async with Process(f"dies {turn}", database) as dies:
            await until(lambda: ledger.value("SELECT count(*) FROM entry") > booked, 60)  # noqa: B023 - awaited here
            await after(dice.uniform(0, 0.3))
            dies.send(signal.SIGKILL)
            await dies.ended()
        booked = ledger.value("SELECT count(*) FROM entry")
    assert ledger.value("SELECT count(*) FROM holdfast.job WHERE kind = 'story'") > 0, "nothing was left to do"
    async with Process("last", database) as last:
        await until(lambda: not ledger.value("SELECT count(*) FROM holdfast.job"), 300)
        assert await last.stop() == 0
    assert {str(ledger.job(story).result) for story in made} == {"18"}
    assert ledger.rows("SELECT story, n FROM entry ORDER BY 1, 2") == [(s, n) for s in range(STORIES) for n in range(4)]
    assert ledger.value("SELECT count(*) FROM holdfast.job_history WHERE kind = 'part'") == 4 * STORIES
    assert ledger.value("SELECT count(*) FROM holdfast.attempt WHERE outcome = 'lost'") > 0
    assert ledger.value("SELECT (SELECT count(*) FROM holdfast.step) + (SELECT count(*) FROM holdfast.blocker)") == 0
