import { useState } from "preact/hooks";
import { api } from "../api";
import { bytes, tries } from "../number";
import { Badge, StatusBadge } from "../parts/badge";
import { ActButton, Button } from "../parts/button";
import { Copy } from "../parts/copy";
import { Facts } from "../parts/facts";
import { Icon } from "../parts/icon";
import { JobActionDialog, VERBS, type Verb } from "../parts/job-action";
import { Json } from "../parts/json";
import { Page, Panel } from "../parts/page";
import { Refresh } from "../parts/refresh";
import { Bones, Loaded, Notice } from "../parts/state";
import { Moment, Time } from "../parts/time";
import { Timeline } from "../parts/timeline";
import { useResource } from "../resource";
import { to } from "../route";
import { traceId } from "../story";
import { between, duration } from "../time";
import type { JobStory, Status } from "../types";

const EVERY_MS = 4000;
const ENDED = new Set<Status>(["completed", "failed", "cancelled"]);
const FITS: Record<Verb, { when: Status[]; else: string }> = {
  retry: { when: ["failed"], else: "Only a dead letter can be retried" },
  cancel: { when: ["blocked", "pending", "processing"], else: "It has ended" },
  reschedule: { when: ["pending"], else: "Only what waits for its time can be rescheduled" },
  delete: { when: ["blocked", "pending"], else: "Only what waits can be deleted" },
};

export function JobPage({ id }: { id: string }) {
  const [ended, setEnded] = useState(false);
  const [verb, setVerb] = useState<Verb | null>(null);
  const job = useResource(
    `job ${id}`,
    async (signal) => {
      const story = await api.job(id, signal);
      setEnded(ENDED.has(story.status));
      return story;
    },
    ended ? null : EVERY_MS,
  );
  const story = job.value;
  return (
    <Page
      title={`Job #${id}`}
      trail={<a href={to("jobs")}>Jobs</a>}
      note={
        story && (
          <span class="job-line">
            <StatusBadge status={story.status} />
            <code>{story.kind}</code>
            <span>
              in <a href={to("jobs", { queue: story.queue })}>{story.queue}</a>
            </span>
          </span>
        )
      }
      aside={<Refresh />}
    >
      {story === null && job.error?.code === "archived" ? (
        <LeftJob id={id} />
      ) : (
        <Loaded of={job} skeleton={<Skeleton />}>
          {(shown) => (
            <>
              <div class="buttons job-actions">
                {(Object.keys(FITS) as Verb[]).map((one) => (
                  <ActButton
                    key={one}
                    icon={VERBS[one].icon}
                    look={one === "delete" ? "danger" : "plain"}
                    why={
                      FITS[one].when.includes(shown.status)
                        ? null
                        : `${FITS[one].else}; this job is ${shown.status}.`
                    }
                    onClick={() => setVerb(one)}
                  >
                    {VERBS[one].name}…
                  </ActButton>
                ))}
              </div>
              <Told story={shown} />
            </>
          )}
        </Loaded>
      )}
      {verb && (
        <JobActionDialog
          verb={verb}
          target={{ ids: [id] }}
          onDone={job.reload}
          onClose={() => setVerb(null)}
        />
      )}
    </Page>
  );
}

/** A job that is no longer in the database: its file is read only when somebody asks for that. */
function LeftJob({ id }: { id: string }) {
  const [asked, setAsked] = useState(false);
  if (asked) return <ArchivedStory id={id} />;
  return (
    <Notice icon="archive" title="This job has left the database">
      <p>The archive has files that may hold it, with its attempts.</p>
      <Button look="primary" icon="search" onClick={() => setAsked(true)}>
        Look in the archive
      </Button>
    </Notice>
  );
}

function ArchivedStory({ id }: { id: string }) {
  const archived = useResource(`archived job ${id}`, (signal) => api.archivedJob(id, signal));
  const found = archived.value;
  return (
    <>
      <p class="hidden" role="status">
        {found ? "Found in the archive" : ""}
      </p>
      <Loaded of={archived} skeleton={<Skeleton />}>
        {({ job, files, complete }) => (
          <>
            <section class="panel archived-from" aria-label="Archived">
              <p class="job-line">
                <Badge tone="held" icon="archive">
                  archived
                </Badge>
                <StatusBadge status={job.status} />
                <code>{job.kind}</code>
                <span>in {job.queue}</span>
              </p>
              <p class="note">This is the job as it was exported, from:</p>
              <ul>
                {files.map((file) => (
                  <li key={file.object}>
                    <code>{file.object}</code>
                  </li>
                ))}
              </ul>
              {!complete && (
                <p class="note">Not every file with attempts was read in time: some may be missing.</p>
              )}
            </section>
            <Told story={job} />
          </>
        )}
      </Loaded>
    </>
  );
}

function Told({ story }: { story: JobStory }) {
  return (
    <div class="halves">
      <div>
        <Panel title="What happened">
          <Timeline story={story} />
        </Panel>
        {story.error && (
          <Panel title="Error" note={story.error_code && <code class="text-bad">{story.error_code}</code>}>
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

function facts(story: JobStory): Parameters<typeof Facts>[0]["of"] {
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
    ["Due", <Moment key="due" at={story.available_at} />],
    ["Ended", story.finished_at && <Moment key="ended" at={story.finished_at} />],
    [
      "Took",
      story.finished_at && `${duration(between(story.available_at, story.finished_at))} from due to ended`,
    ],
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
    [
      "Chain",
      <a key="chain" href={to(["chains", story.chain_id])}>
        #{story.chain_id}
      </a>,
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

function Skeleton() {
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
