"""absurd: a synchronous worker in each thread, with a connection of its own, which claims five tasks at a time."""

from __future__ import annotations

import logging
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from absurd_sdk import Absurd
from stories import RESULT, STEPS, arguments, main

QUEUE = "default"
LEASE = 120

logging.disable(logging.CRITICAL)
url, at_once, tasks = arguments()
for command in (["init"], ["create-queue", QUEUE]):
    control = Path(sys.executable).with_name("absurdctl")
    subprocess.run([control, *command, "--database", url], check=True, stdout=sys.stderr)


def connected() -> Absurd:
    app = Absurd(url, queue_name=QUEUE)

    @app.register_task("ten")
    def ten(params, ctx):  # noqa: ARG001
        for step in range(STEPS):
            ctx.step(f"step-{step}", lambda: RESULT)
        return "done"

    @app.register_task("none")
    def none(params, ctx):  # noqa: ARG001
        return "done"

    return app


apps = [connected() for _ in range(at_once)]


def work(app: Absurd) -> None:
    # `work_batch` of the SDK, until nothing is left.
    while claimed := app.claim_tasks(batch_size=5, claim_timeout=LEASE, worker_id="w"):
        for task in claimed:
            app._execute_task(task, LEASE)


def run(kind: str, count: int) -> None:
    for n in range(count):
        apps[0].spawn(kind, {"n": n})
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(work, apps))


main(run, tasks)
