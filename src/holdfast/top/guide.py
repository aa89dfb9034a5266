"""What the key `?` shows."""

from __future__ import annotations

from holdfast.top.sheet import Page

GUIDE = Page(
    "holdfast top",
    (
        "Looking",
        "  1 … 7, Tab     the tables",
        "  ↑ ↓ PgUp PgDn  move; ← → more columns",
        "  Enter          more of a row, or its jobs",
        "  !              everything that is wrong",
        "  space          look at once",
        "  t              light or dark",
        "  q              quit",
        "",
        "Sorting and filtering",
        "  s, S           sort by the next, the previous column; or click its head",
        "  o              the other way round",
        "  /              filter by words; column:word looks in one column;",
        "                 Enter keeps it, Esc drops it",
        "  In Jobs, status: kind: queue: error: order_key: unique_key: text:",
        "  ask the database for all jobs, on Enter, by the whole value;",
        "  text: looks into payloads.",
        "",
        "Acting: asked first, and written into the audit table",
        "  r              jobs: retry a dead letter; dead letters: redrive the group;",
        "                 runners: run now",
        "  c              jobs: cancel",
        "  p              queues, runners, relays: pause or resume",
        "",
        "done/h, failed/h: what ended within the hour. p95: from due to ended.",
        "limit, rate: `own` is each worker's own setting. Live jobs are counted",
        "every few seconds, not at every look. The clock is PostgreSQL's.",
    ),
)
