"""The cycle that ends deliveries whose job is gone: cancelled or deleted by an operator, or a dead letter."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast import Cron
from tenders.app import app

if TYPE_CHECKING:
    from holdfast import Counts, Tick
    from tenders.app import State

# How long an operator can replay a dead letter.
GRACE = timedelta(days=1)
# Deliveries that are ended with one statement.
BATCH = 1_000

# A delivery is committed together with its first job, and the end of each job together with the next one. So every
# snapshot with a delivery that has not ended has a live job of its chain, unless that is gone. If a replayed job
# changes the delivery while this statement runs, PostgreSQL checks `updated_at` again, and the delivery is kept.
_END = """
UPDATE notification_deliveries SET status = 'failed', next_attempt_at = NULL, last_error_code = 'JobMissing',
    last_error_message = 'the job was cancelled or deleted, or it failed', updated_at = now(), completed_at = now()
WHERE id IN (
    SELECT d.id FROM notification_deliveries d
    WHERE d.completed_at IS NULL AND d.chain_id IS NOT NULL AND d.updated_at < now() - %(grace)s
        AND NOT EXISTS (SELECT FROM holdfast.job j WHERE j.id = d.chain_id)
        AND NOT EXISTS (SELECT FROM holdfast.job j WHERE j.chain_id = d.chain_id)
    ORDER BY d.id LIMIT %(most)s FOR UPDATE SKIP LOCKED)
"""


@app.runner("strandedDeliveries", every=Cron("7 3 * * *", tz="America/Santiago"), singleton=True)
async def end_stranded(tick: Tick) -> Counts:
    state: State = tick.state
    while not tick.budget.over:
        async with state.pool.connection() as conn:
            ended = (await conn.execute(_END, {"grace": GRACE, "most": BATCH})).rowcount
        tick.count("failed", ended)
        if ended < BATCH:
            break
    return {}
