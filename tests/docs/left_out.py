"""Blocks that the runner of pages leaves out, each with its reason, and pages that another test runs."""

from __future__ import annotations

# The page, and how the block begins.
LEFT_OUT: dict[tuple[str, str], str] = {
    (
        "docs/how-to/worker.md",
        "from fastapi import FastAPI",
    ): "a site is run by tests/contrib and the tutorial on FastAPI",
    ("docs/how-to/metrics.md", "instrument(app, meter_provider"): "tests/telemetry gives providers of its own",
    ("docs/how-to/worker.md", "@asynccontextmanager"): "a site is run by tests/contrib and the tutorial on FastAPI",
}

# Pages whose blocks need more than a page can prepare, and the test that runs or checks them.
RUN_ELSEWHERE = {
    "docs/how-to/chains.md": "tests/chains/test_page.py",
    "docs/how-to/deploy.md": "tests/deploy/test_page.py",
    "docs/how-to/events.md": "tests/relay/test_page.py",
    "docs/how-to/frameworks.md": "tests/test_frameworks_page.py",
    "docs/how-to/move-from-an-outbox.md": "tests/moving/test_guides.py",
    "docs/how-to/move-from-celery.md": "tests/moving/test_guides.py",
    "docs/how-to/move-from-oban.md": "tests/moving/test_guides.py",
    "docs/how-to/move-from-pgqueuer.md": "tests/moving/test_guides.py",
    "docs/how-to/move-from-procrastinate.md": "tests/moving/test_guides.py",
    "docs/how-to/node-and-go.md": "tests/docs/test_other_languages.py",
    "docs/how-to/recipes.md": "tests/docs/test_recipes.py",
    "docs/how-to/runners.md": "tests/engine/test_runner.py",
    "docs/how-to/sinks.md": "tests/relay/sinks/publishing.py",
    "docs/how-to/testing.md": "tests/testing/test_page.py",
    "docs/how-to/troubleshooting.md": "tests/docs/test_troubleshooting.py",
    "docs/how-to/worker.md": "tests/engine/test_worker_page.py",
    "docs/reference/cli.md": "tests/docs/test_commands.py",
}
