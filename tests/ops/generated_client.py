"""Two dozen calls with the client that openapi-python-client makes of the document: URL TOKEN JOB DEAD_LETTER."""

from __future__ import annotations

import pkgutil
import sys
from importlib import import_module
from typing import Any

api: Any = import_module("generated.api")
models: Any = import_module("generated.models")
url, token, job, dead = sys.argv[1:]
client = import_module("generated").AuthenticatedClient(base_url=url, token=token)
calls = {found.name.rpartition(".")[2]: found.name for found in pkgutil.walk_packages(api.__path__, f"{api.__name__}.")}


def call(name: str, *path: str, status: int = 200, **given: Any) -> Any:
    answer = import_module(calls[name]).sync_detailed(*path, client=client, **given)
    assert answer.status_code == status, (name, answer.status_code, answer.content)
    assert answer.parsed is not None, name
    return answer.parsed


assert call("get_me").role == "developer"
assert call("get_overview", minutes=30).verdict
assert call("list_jobs", limit=2).items[0].kind
assert call("get_job", job).id == job
assert call("get_job", "999999", status=404).type_.endswith(":not_found")
call("get_chain", job)
for name in (
    "list_chains", "list_dead_letters", "list_runners", "list_runs", "list_workers", "list_kinds", "list_limits",
    "list_subscriptions", "list_exports", "list_audit", "list_bulk_actions",
):  # fmt: skip
    assert isinstance(call(name).items, list)
call("get_archive")
call("get_outbox_stats")
mail = next(line for line in call("list_queues").items if line.name == "mail")
control = models.QueueControl(concurrency=3, lease_ms=None, rate=None)
call("set_queue", "mail", body=control, if_match=mail.etag)
assert call("set_queue", "mail", body=control, if_match=mail.etag, status=412).detail
assert call("act_on_queue", "mail", body=models.QueueAction.from_dict({"action": "pause"})).done
assert call("act_on_jobs", body=models.JobAction.from_dict({"action": "retry", "ids": [dead]})).preview
call("act_on_runner", "carts.sweep", body=models.RunnerAction.from_dict({"action": "run"}))
