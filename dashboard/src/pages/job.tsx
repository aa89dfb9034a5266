import { useState } from "preact/hooks";
import { useAction } from "../action";
import { api } from "../api";
import { many } from "../number";
import type { JobStory, Status } from "../openapi";
import { StatusBadge } from "../parts/badge";
import { ActButton } from "../parts/button";
import { JobActionDialog, VERBS, type Verb } from "../parts/job-action";
import { JobBones, Story } from "../parts/job-story";
import { LeftJob } from "../parts/left-job";
import { Page } from "../parts/page";
import { Refresh } from "../parts/refresh";
import { Loaded } from "../parts/state";
import { useResource } from "../resource";
import { to } from "../route";

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
      const story = await api.getJob(id, signal);
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
        <LeftJob id={id} title="This job has left the database" />
      ) : (
        <Loaded of={job} skeleton={<JobBones />}>
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
              {keyToResume(shown) && <StoppedKey story={shown} onDone={job.reload} />}
              <Story story={shown} />
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

/** Whether the order key of a job is stopped, by this job or by another. */
function keyToResume({ waits, key_stop }: JobStory): boolean {
  return key_stop !== null || waits.some((wait) => wait.code === "order_stopped");
}

/** Let the order key go on, without the dead letter that stopped it. */
function StoppedKey({ story, onDone }: { story: JobStory; onDone: () => void }) {
  const { busy, run } = useAction(onDone);
  const { key_stop, order_key: key } = story;
  if (key === null) return null;
  return (
    <p class="problem tone-bad">
      <span>
        The order key <code>{key}</code> is stopped
        {key_stop !== null && ` by this job; ${many(key_stop, "job")} wait`}. Retry{" "}
        {key_stop === null ? "the dead letter" : "it"}, or go on without it.
      </span>
      <ActButton
        small
        icon="play"
        busy={busy !== null}
        onClick={() => run(key, () => api.actOnOrderKey({ action: "resume", key }))}
      >
        Resume the key
      </ActButton>
    </p>
  );
}
