from __future__ import annotations

import pytest

from holdfast._store.statement import statements
from tools import walks

followed = pytest.mark.skipif(walks.MONITORING is None, reason="Python 3.12 follows calls")


@followed
async def test_a_job_is_followed_into_the_worker_and_the_database(database: str) -> None:
    walk = await walks.follow_job(database)
    reported = [
        *("_model/kind.py", "_store/enqueue.py", "_drivers/psycopg.py", "sql/schema/06_enqueue.sql"),
        *("_engine/jobs/named.py", "sql/job.sql", "_engine/jobs/run_handlers.py", "_store/finish.py"),
    ]
    assert [file for file in walk.files if file in reported] == reported
    assert not [file for file in walk.files if file.startswith("_relay")]


@followed
async def test_a_request_and_a_setting_are_followed_as_the_page_shows_them(database: str) -> None:
    for walk in (await walks.follow_request(database), await walks.follow_setting(database)):
        assert f"| {walk.of} | {len(walk.files)} | {walk.returns} |" in walks.PAGE.read_text(), walk


def test_a_package_entered_again_is_a_return() -> None:
    assert walks.Walk("", ["_app/a.py", "_app/b.py", "_store/c.py", "sql/d.sql", "_app/e.py"]).returns == 1


def test_a_statement_is_found_by_its_text_and_a_function_by_its_name() -> None:
    assert walks.sql_files("SELECT * FROM holdfast.claim_jobs(1)") == ["sql/schema/09_claim.sql"]
    assert walks.sql_files(statements()["read_path"]) == ["sql/outbox.sql"]
