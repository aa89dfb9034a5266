"""DBOS Transact: workflows called directly, each in a thread of its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from dbos import DBOS
from stories import RESULT, STEPS, arguments, main

url, at_once, tasks = arguments()
DBOS(
    config={
        "name": "holdfast-bench",
        "system_database_url": url,
        "log_level": "ERROR",
        "sys_db_pool_size": at_once + 4,
        "run_admin_server": False,
    }
)


@DBOS.step()
def one(n: int) -> dict[str, object]:  # noqa: ARG001
    return RESULT


@DBOS.workflow()
def ten(n: int) -> str:  # noqa: ARG001
    for step in range(STEPS):
        one(step)
    return "done"


@DBOS.workflow()
def none(n: int) -> str:  # noqa: ARG001
    return "done"


def run(kind: str, count: int) -> None:
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map({"ten": ten, "none": none}[kind], range(count)))


DBOS.launch()
main(run, tasks)
DBOS.destroy()
