import { now } from "../clock";
import { bytes, count, tries } from "../number";
import type { JobStory } from "../openapi";
import { to } from "../route";
import { incidentNote, traceId } from "../story";
import { between, coarse, duration } from "../time";
import { Copy } from "./copy";
import { Facts } from "./facts";
import { Icon } from "./icon";
import { Json } from "./json";
import { Panel } from "./page";
import { Bones } from "./state";
import { Moment, Time } from "./time";
import { Timeline } from "./timeline";

/** What happened to a job, and all that is known of it. */
export function Story({ story }: { story: JobStory }) {
  return (
    <div class="halves">
      <div>
        <Panel title="What happened">
          <Timeline story={story} />
        </Panel>
        {story.error && (
          <Panel
            title="Error"
            note={story.error_code && <code class="text-bad">{story.error_code}</code>}
            aside={<Copy text={incidentNote(story, location.href)} what="Incident note" />}
          >
            <pre class="error-text">{story.error}</pre>
          </Panel>
        )}
      </div>
      <div>
        <Panel title="Facts">
          <Facts of={facts(story)} />
        </Panel>
        <Panel
          title="Payload"
          note={bytes(story.payload_bytes)}
          aside={story.redacted_parts.includes("payload") && <Redacted />}
        >
          <Json value={story.payload} what="Payload" />
        </Panel>
        {story.result !== null && (
          <Panel title="Result" aside={story.redacted_parts.includes("result") && <Redacted />}>
            <Json value={story.result} what="Result" />
          </Panel>
        )}
        {story.headers !== null && Object.keys(story.headers as object).length > 0 && (
          <Panel title="Headers" aside={story.redacted_parts.includes("headers") && <Redacted />}>
            <Json value={story.headers} what="Headers" />
          </Panel>
        )}
      </div>
    </div>
  );
}

/** For how long it runs, and for how long it may. */
function Running({ since, most }: { since: string; most: number | null }) {
  const seconds = Math.max(0, (now.value - Date.parse(since)) / 1000);
  const over = most !== null && seconds > most / 1000;
  return (
    <span class={over ? "text-bad" : undefined}>
      for {coarse(seconds)}
      {most !== null && ` of at most ${duration(most / 1000)}`}, since <Moment at={since} />
    </span>
  );
}

/** Of several attempts the times are those of all. */
function all({ attempts, running_since }: JobStory): string {
  const started = attempts.length + (running_since ? 1 : 0);
  return started > 1 ? `, in ${started} attempts` : "";
}

type Named = Parameters<typeof Facts>[0]["of"];

/** When it was due, ran and ended, and how long it waited and ran. */
function times(story: JobStory): Named {
  return [
    ["First due", <Moment key="first" at={story.first_due_at} />],
    [
      story.finished_at ? "Last due" : "Due",
      story.available_at !== story.first_due_at && <Moment key="due" at={story.available_at} />,
    ],
    [
      "Running",
      story.running_since && (
        <Running key="running" since={story.running_since} most={story.max_runtime_ms} />
      ),
    ],
    ["Ended", story.finished_at && <Moment key="ended" at={story.finished_at} />],
    [
      "Waited",
      story.waited_ms !== null && `${duration(story.waited_ms / 1000)} from due to started${all(story)}`,
    ],
    ["Ran", story.ran_ms !== null && `${duration(story.ran_ms / 1000)}${all(story)}`],
    [
      "Took",
      story.finished_at &&
        `${duration(Math.max(0, between(story.first_due_at, story.finished_at)))} from first due to ended`,
    ],
  ];
}

function facts(story: JobStory): Named {
  const trace = traceId(story.trace);
  const worker = story.worker_name ?? story.worker;
  return [
    [
      "Kind",
      <a key="kind" href={to("jobs", { kind: story.kind })}>
        {story.kind}
      </a>,
    ],
    ["Attempt", tries(story.attempt, story.max_attempts)],
    [
      "Time limit",
      story.max_runtime_ms !== null &&
        `${duration(story.max_runtime_ms / 1000)} an attempt${story.max_runtime_default ? " (three leases, the default)" : ""}`,
    ],
    ["Priority", story.priority],
    ["Created", <Moment key="created" at={story.created_at} />],
    ...times(story),
    ["Expires", story.expires_at && <Moment key="expires" at={story.expires_at} />],
    ["Lease until", story.locked_until && <Time key="lease" at={story.locked_until} />],
    [
      "Worker",
      worker && (
        <a key="worker" href={to("workers")}>
          {worker}
        </a>
      ),
    ],
    ["Version", story.app_version],
    [
      "Chain",
      <a key="chain" href={to(["chains", story.chain_id])}>
        #{story.chain_id}
      </a>,
    ],
    [
      "Group",
      story.group &&
        `${count(story.group.done)} done, ${count(story.group.failed)} failed, ${count(story.group.waiting)} waiting`,
    ],
    [
      "Order key",
      story.order_key && (
        <a key="order" href={to("jobs", { order_key: story.order_key })}>
          {story.order_key}
        </a>
      ),
    ],
    [
      "Tags",
      story.tags.length > 0 &&
        story.tags.map((tag) => (
          <a key={tag} href={to("jobs", { tag })}>
            {tag}{" "}
          </a>
        )),
    ],
    [
      "Unique key",
      story.unique_key && (
        <a key="unique" href={to("jobs", { unique_key: story.unique_key })}>
          {story.unique_key}
        </a>
      ),
    ],
    [
      "Trace",
      trace && (
        <span class="trace">
          <code>{trace}</code>
          <Copy text={trace} what="Trace id" />
        </span>
      ),
    ],
  ];
}

function Redacted() {
  return (
    <span class="redacted" title="Fields that are secret are left out by the server.">
      <Icon name="blocked" size={12} />
      partly redacted
    </span>
  );
}

/** What stands in until a job is there. */
export function JobBones() {
  return (
    <>
      <Bones rows={1} />
      <div class="halves">
        <Bones rows={3} tall />
        <Bones rows={3} tall />
      </div>
    </>
  );
}
