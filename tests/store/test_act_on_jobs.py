"""Acting on several jobs in the caller's transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast._drivers import run_sync
from holdfast._store.search import act_on_jobs
from tests.kit.workers import enqueue, job, statuses

if TYPE_CHECKING:
    from tests.kit.workers import Connect


@pytest.mark.parametrize("action", ["cancel", "delete"])
def test_the_lock_timeout_of_the_callers_transaction_is_kept(connect: Connect, action: str) -> None:
    user, holder, observer = connect(), connect(), connect()
    first, second, third = enqueue(user, job(), job(), job())
    with holder.transaction():
        holder.execute("SELECT FROM holdfast.job WHERE id = %s FOR UPDATE", [first])
        with user.transaction():
            user.execute("SET LOCAL lock_timeout = '321ms'")
            acted = run_sync(user, act_on_jobs(action, dict.fromkeys([first, second])))
            assert [(one.id, one.done) for one in acted] == [(first, False), (second, True)]
            assert acted[0].answer == "busy"
            assert user.execute("SHOW lock_timeout").fetchone() == ("321ms",)
    assert user.execute("SHOW lock_timeout").fetchone() == ("0",), "the session's own"
    assert statuses(observer).get(second) != "pending"
    assert [one.done for one in run_sync(user, act_on_jobs(action, {third: None}))] == [True]
    assert user.execute("SHOW lock_timeout").fetchone() == ("0",)
