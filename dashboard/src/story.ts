import type { AttemptLine, JobStory, JobWait, StepLine } from "./openapi";

export type Tone = "ok" | "bad" | "warn" | "busy" | "held" | "idle";

/** One thing that happened to a job, happens to it now, or will. */
export interface Step {
  tone: Tone;
  title: string;
  at: string | null;
  /** The worker that it happened on: its name, or its id where the name is not known. */
  worker?: string | null;
  code?: string | null;
  text?: string | null;
  /** When the handler started. */
  started?: string | null;
  /** How many seconds the handler ran. */
  seconds?: number | null;
  /** How many seconds it was due before that. */
  waited?: number | null;
  /** The version of the application that ran it. */
  version?: string | null;
  traceback?: string | null;
  /** What the handler logged last. */
  log?: string | null;
  /** Jobs and chains to go to. */
  jobs?: string[];
  chains?: string[];
  /** It lies ahead. */
  ahead?: boolean;
}

const ENDS: Record<AttemptLine["outcome"], { tone: Tone; says: string }> = {
  completed: { tone: "ok", says: "completed" },
  retry: { tone: "warn", says: "failed, and was tried again" },
  reschedule: { tone: "idle", says: "asked to run again later" },
  failed: { tone: "bad", says: "failed for good" },
  cancelled: { tone: "idle", says: "was cancelled" },
  released: { tone: "idle", says: "was given back, uncounted" },
  lost: { tone: "warn", says: "was lost: its lease expired" },
};

/** Tell a job from its making until now, oldest first. */
export function told(job: JobStory): Step[] {
  return [
    ...beginning(job),
    ...inOrder([...job.attempts.map((line) => attempt(line, job)), ...job.steps.map(recorded)]),
    ...present(job),
    ...afterwards(job),
  ];
}

const RECORDED: Record<StepLine["state"], { tone: Tone; says: string }> = {
  done: { tone: "ok", says: "Step" },
  failed: { tone: "warn", says: "Step failed:" },
  sleep: { tone: "idle", says: "Sleep" },
  waits: { tone: "held", says: "Waits for the message" },
  received: { tone: "ok", says: "Received" },
  gathers: { tone: "held", says: "Waits for the jobs of" },
  gathered: { tone: "ok", says: "Gathered" },
  sent: { tone: "idle", says: "Was sent, and has not received yet:" },
};

function recorded(line: StepLine): Step {
  const { tone, says } = RECORDED[line.state];
  const key = line.key === null ? "" : ` (${line.key})`;
  return { tone, title: `${says} ${line.name}${key}`, at: line.at };
}

/** Sort by time; without steps the order of the attempts stays. */
function inOrder(steps: Step[]): Step[] {
  return steps.sort((one, other) => Date.parse(one.at ?? "") - Date.parse(other.at ?? ""));
}

function beginning(job: JobStory): Step[] {
  const made: Step = { tone: "idle", title: "Enqueued", at: job.created_at };
  if (job.replay_of)
    Object.assign(made, { title: "Enqueued to run a dead letter again", jobs: [job.replay_of] });
  // Chains that a story gathers stand where it waits for them.
  if (job.blockers.length === 0 || job.steps.some((line) => line.state === "gathers")) return [made];
  const waits: Step = {
    tone: "held",
    title: job.status === "blocked" ? "Waits for other chains" : "Came after other chains",
    at: null,
    chains: job.blockers.map((blocker) => blocker.chain_id),
  };
  return [made, waits];
}

function attempt(line: AttemptLine, job: JobStory): Step {
  const { tone, says } = ENDS[line.outcome];
  const last = line.outcome === "retry" && job.status === "failed" && line.attempt === job.attempt;
  const suspended = line.outcome === "reschedule" && job.steps.length > 0;
  return {
    tone: last ? "bad" : tone,
    title: `Attempt ${line.attempt} ${last ? ENDS.failed.says : suspended ? "was suspended" : says}`,
    at: line.ended_at,
    worker: line.worker_name ?? line.worker,
    code: line.error_code,
    text: line.error,
    started: line.started_at,
    seconds: line.seconds,
    waited: line.waited,
    version: line.app_version,
    traceback: line.traceback,
    log: line.log,
  };
}

function present(job: JobStory): Step[] {
  const asked: Step[] = job.cancel_requested_at
    ? [{ tone: "warn", title: "Asked to stop", at: job.cancel_requested_at }]
    : [];
  switch (job.status) {
    case "blocked":
      return [...asked, ...job.waits.map(wait)];
    case "pending":
      return [
        ...asked,
        ...job.waits.map(wait),
        { tone: "idle", title: `Attempt ${job.attempt + 1} may start`, at: job.available_at, ahead: true },
      ];
    case "processing":
      return [...asked, running(job), ...job.waits.map(wait)];
    default:
      return [...asked, ...ended(job)];
  }
}

const STOPPED = new Set<JobWait["code"]>([
  "order_stopped",
  "payload_unread",
  "paused",
  "silent_worker",
  "unserved",
]);

/** Why it does not run now. */
function wait({ code, text, command, jobs, chains }: JobWait): Step {
  const tone = STOPPED.has(code) ? "bad" : "idle";
  return { tone, title: text, at: null, ahead: true, text: command, jobs, chains };
}

function running(job: JobStory): Step {
  const worker = job.worker_name ?? job.worker;
  const done = job.progress === null ? null : `${Math.round(job.progress * 100)} % done`;
  const text = [done, job.progress_note].filter(Boolean).join(": ") || null;
  const { running_since: started, app_version: version } = job;
  return { tone: "busy", title: `Attempt ${job.attempt} runs now`, at: null, worker, started, version, text };
}

/** How it ended, unless its last attempt has told it already. */
function ended(job: JobStory): Step[] {
  const last = job.attempts.at(-1);
  const same =
    last && (last.outcome === job.status || (last.outcome === "retry" && last.attempt === job.attempt));
  if (same) return [];
  if (job.status === "completed") {
    const worker = job.worker_name ?? job.worker;
    return [
      { tone: "ok", title: `Attempt ${Math.max(job.attempt, 1)} completed`, at: job.finished_at, worker },
    ];
  }
  if (job.status === "cancelled") return [{ tone: "idle", title: "Cancelled", at: job.finished_at }];
  return [
    {
      tone: "bad",
      title: "Became a dead letter",
      at: job.finished_at,
      code: job.error_code,
      text: job.error,
    },
  ];
}

function afterwards(job: JobStory): Step[] {
  const steps: Step[] = [];
  if (job.next_id) steps.push({ tone: "ok", title: "Continued", at: job.finished_at, jobs: [job.next_id] });
  if (job.replays.length > 0) {
    steps.push({ tone: "busy", title: "Run again", at: null, jobs: job.replays });
  }
  return steps;
}

/** The trace id of a `traceparent`; null when it is none. */
export function traceId(traceparent: string | null): string | null {
  return /^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}/.exec(traceparent ?? "")?.[1] ?? null;
}

/** What to tell others of a job that failed: what, how often, where and why. */
export function incidentNote(job: JobStory, link: string): string {
  const last = job.attempts.at(-1);
  const runs = job.attempts.map(
    ({ attempt, outcome, ended_at, worker_name, worker, app_version, error_code }) =>
      [
        `- attempt ${attempt} ${outcome}`,
        ended_at,
        worker_name ?? worker,
        app_version && `version ${app_version}`,
        error_code,
      ]
        .filter(Boolean)
        .join(", "),
  );
  return [
    `Job ${job.id}, ${job.kind} in ${job.queue}: ${job.status}`,
    link,
    `${job.error_code}: ${job.error}`,
    runs.join("\n"),
    last?.traceback,
    last?.log && `Log:\n${last.log}`,
  ]
    .filter(Boolean)
    .join("\n\n");
}
