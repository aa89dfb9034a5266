// Made-up answers, to look at the pages without a database. Nothing of the product or its tests uses them.
const MINUTE = 60_000;
export const ago = (seconds) => new Date(Date.now() - seconds * 1000).toISOString();
export const KINDS = [
  ["invoice.pdf.render", "pdf"],
  ["receipt.send", "mail"],
  ["order.confirm", "default"],
  ["stock.reserve", "default"],
  ["report.monthly.build", "reports"],
];
const STATUSES = ["completed", "completed", "pending", "processing", "failed", "completed", "blocked", "cancelled"];

// The same numbers every time, and different ones for different seeds.
function dice(seed) {
  let state = seed * 2654435761;
  return () => {
    state = (state * 1664525 + 1013904223) % 4294967296;
    return state / 4294967296;
  };
}

function minutes(seed, scale, bad) {
  const roll = dice(seed);
  const start = Math.floor(Date.now() / MINUTE) * MINUTE;
  return Array.from({ length: 60 }, (_, index) => {
    const wave = 1 + 0.35 * Math.sin(index / 7 + seed) + 0.25 * roll();
    const completed = index === 59 ? Math.round(scale * 0.3) : Math.round(scale * wave);
    const failed = bad && index > 40 && index < 52 ? Math.round(roll() * scale * 0.02) : roll() > 0.93 ? 1 : 0;
    const slow = bad && index > 40 ? 4 : 1;
    return {
      minute: new Date(start - (59 - index) * MINUTE).toISOString(),
      completed,
      failed,
      retried: failed * 3 + Math.round(roll() * scale * 0.002),
      cancelled: 0,
      latency: {
        p50: 0.025 * slow * (1 + roll()),
        p95: 0.25 * slow * (1 + roll()),
        p99: 0.9 * slow * (1 + roll()),
      },
    };
  });
}

const sum = (lines, name) => lines.reduce((total, line) => total + line[name], 0);
export const depth = (due, processing, oldest, extra = {}) => ({
  pending: due * 3,
  due,
  processing,
  blocked: Math.round(due / 9),
  stuck: 0,
  oldest_due_seconds: due ? oldest : 0,
  ...extra,
});

export function overview(mood) {
  const wobble = Math.round(Math.abs(Math.sin(Date.now() / 9000)) * 180);
  const bad = mood === "trouble";
  if (mood === "empty") return empty();
  const queues = [
    ["default", 1300, depth(120 + wobble, 18, 2.4)],
    ["mail", 620, depth(bad ? 18_420 : 40, 10, bad ? 1840 : 0.8)],
    ["pdf", 90, depth(6, 2, 12.5, { stuck: bad ? 3 : 0 })],
    ["reports", 4, depth(0, 1, 0)],
  ].map(([name, scale, of], seed) => {
    const lines = minutes(seed + 2, scale, bad && name === "mail");
    const latency = lines.at(-2).latency;
    return {
      name,
      paused: bad && name === "reports",
      depth: of,
      completed: sum(lines, "completed"),
      failed: sum(lines, "failed"),
      latency,
      minutes: lines,
    };
  });
  const all = queues[0].minutes.map((line, index) => ({
    ...line,
    completed: queues.reduce((total, queue) => total + queue.minutes[index].completed, 0),
    failed: queues.reduce((total, queue) => total + queue.minutes[index].failed, 0),
    retried: queues.reduce((total, queue) => total + queue.minutes[index].retried, 0),
    latency: queues[bad ? 1 : 0].minutes[index].latency,
  }));
  const total = (name) => queues.reduce((value, queue) => value + queue.depth[name], 0);
  const problems = bad
    ? [
        {
          code: "backlog",
          severity: "warning",
          text: "18,420 jobs of queue mail are due, the oldest for 30 min.",
          about: "mail",
        },
        {
          code: "unserved_kind",
          severity: "critical",
          text: "37 jobs of kind report.monthly.build are due, and no live worker takes them.",
          about: "report.monthly.build",
        },
        {
          code: "failing",
          severity: "warning",
          text: "4.2 % of what ended in queue mail within ten minutes failed.",
          about: "mail",
        },
        {
          code: "relay_elsewhere",
          severity: "critical",
          text: "The positions of subscription orders are of another server.",
          about: "orders",
        },
      ]
    : [];
  return {
    at: new Date().toISOString(),
    counted_at: ago(2),
    ok: !bad,
    problems,
    depth: {
      pending: total("pending"),
      due: total("due"),
      processing: total("processing"),
      blocked: total("blocked"),
      stuck: total("stuck"),
      oldest_due_seconds: bad ? 1840 : 12.5,
    },
    completed: sum(all, "completed"),
    failed: sum(all, "failed"),
    retried: sum(all, "retried"),
    latency: all.at(-2).latency,
    minutes: all,
    queues,
    workers: 3,
    unserved: [],
    relay_lag_events: bad ? 1240 : 0,
    relay_lag_seconds: bad ? 95 : 0,
  };
}

function empty() {
  const none = { p50: null, p95: null, p99: null };
  const lines = minutes(1, 0, false).map((line) => ({
    ...line,
    completed: 0,
    failed: 0,
    retried: 0,
    latency: none,
  }));
  return {
    at: new Date().toISOString(),
    counted_at: null,
    ok: false,
    problems: [{ code: "no_worker", severity: "critical", text: "No worker is live.", about: null }],
    depth: depth(0, 0, 0),
    completed: 0,
    failed: 0,
    retried: 0,
    latency: none,
    minutes: lines,
    queues: [],
    workers: 0,
    unserved: [],
    relay_lag_events: 0,
    relay_lag_seconds: 0,
  };
}

function line(id) {
  const status = STATUSES[id % STATUSES.length];
  const [kind, queue] = KINDS[id % KINDS.length];
  const ended = ["completed", "failed", "cancelled"].includes(status);
  const created = (910_400 - id) * 47;
  return {
    id: String(id),
    status,
    kind,
    queue,
    priority: 0,
    attempt: status === "failed" ? 3 : status === "pending" ? 0 : 1,
    max_attempts: 3,
    created_at: ago(created),
    available_at: status === "pending" ? ago(-90) : ago(created),
    finished_at: ended ? ago(created - 3) : null,
    worker: status === "pending" ? null : "41",
    order_key: null,
    unique_key: null,
    error_code: status === "failed" ? "smtp_refused" : null,
  };
}

const FIRST = 910_384;

export function jobs(query, mood) {
  if (mood === "empty") return { jobs: [], next: null, looked: { jobs: 0, back_to: null, complete: true } };
  const before = Number(query.get("before") ?? FIRST + 1);
  if (query.get("text")) {
    const next = before - 5000;
    const found = next < FIRST - 20_000 ? [line(next)] : [];
    return {
      jobs: found,
      next: String(next),
      looked: { jobs: 5000, back_to: ago((FIRST - next) * 47), complete: false },
    };
  }
  const found = [];
  for (let id = before - 1; found.length < 50 && id > FIRST - 400; id -= 1) {
    const job = line(id);
    if (["status", "kind", "queue", "error_code"].every((name) => !query.get(name) || query.get(name) === job[name])) found.push(job);
  }
  const last = found.at(-1);
  const complete = found.length < 50;
  return {
    jobs: found,
    next: complete ? null : last.id,
    looked: { jobs: 400, back_to: last?.created_at ?? null, complete },
  };
}

export function job(id) {
  const base = line(Number(id));
  const failed = base.status === "failed";
  const error = "SMTPRecipientsRefused: {'anna@example.org': (450, b'4.2.0 greylisted, try again later')}";
  const attempt = (number, outcome, seconds) => ({
    attempt: number,
    outcome,
    ended_at: ago(seconds),
    worker: "41",
    worker_name: "mail-1",
    error_code: outcome === "lost" ? null : "smtp_refused",
    error: outcome === "lost" ? null : error,
  });
  return {
    ...base,
    created_at: ago(1900),
    available_at: ago(1899),
    finished_at: failed || base.status === "completed" ? ago(1410) : null,
    expires_at: null,
    locked_until: base.status === "processing" ? ago(-42) : null,
    cancel_requested_at: null,
    worker_name: base.worker && "mail-1",
    chain_id: "910300",
    next_id: base.status === "completed" ? "910390" : null,
    order_key: "customer:4711",
    unique_key: null,
    payload: {
      invoice_id: 90211,
      to: "anna@example.org",
      smtp: { host: "mail.example.org", password: "[redacted]" },
      attach: ["invoice.pdf"],
      copies: 1,
      urgent: false,
    },
    payload_bytes: 214,
    headers: { tenant: "north" },
    result: base.status === "completed" ? { message_id: "b1946ac9" } : null,
    redacted: true,
    trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    progress: base.status === "processing" ? 0.64 : null,
    progress_note: base.status === "processing" ? "page 16 of 25" : null,
    error: failed ? error : null,
    attempts: failed ? [attempt(1, "retry", 1880), attempt(2, "lost", 1700), attempt(3, "failed", 1410)] : base.status === "processing" ? [attempt(1, "retry", 1880)] : [],
    replay_of: null,
    replays: failed ? ["910401"] : [],
    blockers:
      base.status === "blocked"
        ? [
            { chain_id: "910288", status: "completed" },
            { chain_id: "910291", status: null },
          ]
        : [],
  };
}

export function act(action) {
  const ids = action.ids ?? Array.from({ length: 34 }, (_, index) => String(FIRST - 4 - index * 8));
  const matched = ids.slice(0, action.limit ?? 100);
  const refused = action.ids ? ids.filter((id) => line(Number(id)).status !== "failed").map((id) => ({ id, why: "It is not a dead letter." })) : [];
  const sample = matched.slice(0, 20).map((id) => line(Number(id)));
  return {
    preview: action.preview ?? true,
    matched: matched.length - refused.length,
    capped: !action.ids && (action.limit ?? 100) < 40,
    done: action.preview === false ? matched.length - refused.length : 0,
    refused,
    sample,
    looked: { jobs: matched.length * 3, back_to: null, complete: true },
  };
}

export const chains = (mood) => ({
  chains:
    mood === "empty"
      ? []
      : Array.from({ length: 24 }, (_, index) => {
          const { id, kind, status, created_at, finished_at } = line(FIRST - index * 3);
          return {
            id,
            kind,
            last_id: index % 3 ? String(Number(id) + 1) : id,
            last_kind: "receipt.send",
            status,
            created_at,
            finished_at,
          };
        }),
  next: null,
  looked: { jobs: 72, back_to: ago(9000), complete: true },
});

export function chain(id) {
  const node = (own, chainId, kind, status, extra = {}) => ({
    id: own,
    chain_id: chainId,
    kind,
    queue: "default",
    status,
    attempt: 1,
    created_at: ago(900),
    finished_at: status === "completed" ? ago(600) : null,
    error_code: null,
    progress: null,
    ...extra,
  });
  return {
    id,
    status: "processing",
    result: null,
    nodes: [
      node("910280", "910280", "stock.reserve", "completed"),
      node("910288", "910288", "payment.capture", "completed"),
      node(id, id, "order.confirm", "completed"),
      node("910310", id, "invoice.pdf.render", "failed", { error_code: "renderer_crashed" }),
      node("910344", id, "invoice.pdf.render", "completed"),
      node("910350", id, "receipt.send", "processing", { progress: 0.4 }),
      node("910360", "910360", "warehouse.notify", "blocked"),
      node("910361", "910361", "report.daily.add", "blocked"),
    ],
    edges: [
      { source: "910280", target: id, kind: "blocks" },
      { source: "910288", target: id, kind: "blocks" },
      { source: id, target: "910310", kind: "next" },
      { source: "910310", target: "910344", kind: "replay" },
      { source: "910344", target: "910350", kind: "next" },
      { source: "910350", target: "910360", kind: "blocks" },
      { source: "910350", target: "910361", kind: "blocks" },
    ],
    complete: true,
  };
}

const group = (kind, queue, error_code, error, count, last) => ({
  kind,
  queue,
  error_code,
  error,
  jobs: count,
  first_at: ago(last + 86_000),
  last_at: ago(last),
  newest: String(FIRST - 4),
});

export const deadLetters = (mood) => ({
  groups:
    mood === "empty"
      ? []
      : [
          group("receipt.send", "mail", "smtp_refused", "SMTPRecipientsRefused: 450 4.2.0 greylisted, try again later", 12_840, 40),
          group("invoice.pdf.render", "pdf", "renderer_crashed", "The renderer ended with signal 9 on page 16 of 25; the document has 14 images above 8 megapixels.", 312, 3600),
          group("order.confirm", "default", "timeout", "max_runtime of 180 s was reached", 4, 7200),
          group("stock.reserve", "default", "validation", "quantity: Input should be greater than 0", 1, 90_000),
        ],
  looked: { jobs: 13_157, back_to: ago(86_400 * 6), complete: true },
});
