"""Each mistake that would break a promise of stories fails a test: it is made here, and that test is run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast._engine.jobs.journal import Journal
from tests.kit.mutation import open_trap
from tests.kit.workers import Worker
from tests.stories import test_gather, test_messages, test_steps, test_storage

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    from holdfast import Holdfast
    from tests.kit.ledger import Ledger

    Connection = psycopg.Connection[Any]

FENCE = "j.id = story AND j.lock_token = token AND j.locked_by = worker FOR SHARE"


def test_a_record_without_the_fence(conn: Connection) -> None:
    open_trap(conn, "save_step", (FENCE, "j.id = story FOR SHARE"))
    with pytest.raises(AssertionError):
        test_storage.test_every_record_names_the_claim(conn, Worker(conn), "lock_token = lock_token + 1")


def test_a_record_whose_lock_lets_the_reaper_pass(conn: Connection, connect: Callable[..., Connection]) -> None:
    open_trap(conn, "save_step", ("FOR SHARE", "FOR KEY SHARE"))
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_storage.test_a_record_in_an_open_transaction_keeps_the_reaper_out(conn, Worker(conn), connect)


async def test_a_sender_without_the_lock(conn: Connection, database: str) -> None:
    open_trap(conn, "send_message", ("ORDER BY j.id DESC LIMIT 1 FOR KEY SHARE", "ORDER BY j.id DESC LIMIT 1"))
    with pytest.raises(AssertionError):
        await test_messages.test_no_wake_up_is_lost(database, 400)


async def test_a_step_that_runs_again_after_a_suspension(
    app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = Journal.reach

    async def forgetful(self: Journal, step: Any, by: object) -> Any:
        found = await usual(self, step, by)
        return None if found is not None and found.state is None else found

    monkeypatch.setattr(Journal, "reach", forgetful)
    ledger.do("CREATE TABLE entry (number bigint NOT NULL)")
    with pytest.raises(AssertionError, match="before"):
        await test_steps.test_a_story_sleeps_without_a_slot_or_an_attempt(app, ledger, test_steps.Bank())


async def test_a_suspension_that_counts_an_attempt(app: Holdfast, ledger: Ledger, conn: Connection) -> None:
    open_trap(conn, "give_back_jobs", ("s.outcome IN ('released', 'reschedule')", "s.outcome = 'released'"))
    ledger.do("CREATE TABLE entry (number bigint NOT NULL)")
    with pytest.raises(AssertionError):
        await test_steps.test_a_story_sleeps_without_a_slot_or_an_attempt(app, ledger, test_steps.Bank())


def test_a_journal_that_is_lost_on_replay(conn: Connection) -> None:
    open_trap(conn, "restore_steps", ("WHERE e.name IS NOT NULL", "WHERE false"))
    with pytest.raises(AssertionError):
        test_storage.test_a_replayed_dead_letter_carries_its_journal(conn, Worker(conn))


def test_a_gather_that_forgets_its_children(conn: Connection) -> None:
    open_trap(conn, "gather_jobs", ("IF place IS NULL THEN", "IF true THEN"))
    with pytest.raises(AssertionError):
        test_gather.test_no_end_of_a_child_is_slept_through(conn, Worker(conn, "k", "child"), "the story")


def test_a_suspension_that_does_not_look_for_children_again(conn: Connection) -> None:
    open_trap(conn, "rouse_stories", ("j.blockers_left = 0 AND EXISTS", "false AND EXISTS"))
    worker = Worker(conn, "k", "child")
    with pytest.raises(AssertionError):
        test_gather.test_a_story_whose_children_end_before_it_is_suspended_is_roused_once(conn, worker)


def test_a_child_that_wakes_a_story_which_runs(conn: Connection) -> None:
    open_trap(conn, "update_waiters", ("CASE WHEN j.status = 'blocked' AND j.limit_key IS NULL", "CASE WHEN true"))
    with pytest.raises(AssertionError):
        test_gather.test_no_end_of_a_child_is_slept_through(conn, Worker(conn, "k", "child"), "the child")
