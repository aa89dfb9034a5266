import { useState } from "preact/hooks";
import { api } from "../api";
import { asApiError } from "../client";
import { serverNow } from "../clock";
import { toQuery } from "../filter";
import { many } from "../number";
import type { JobAction, JobActionResult, JobFilter, RefusedJob } from "../openapi";
import { useResource } from "../resource";
import { Button } from "./button";
import { Dialog } from "./dialog";
import { Choice } from "./field";
import type { IconName } from "./icon";
import { Preview, Refused } from "./preview";
import { Bones, Loaded, Problem } from "./state";
import { say } from "./toast";
import { When } from "./when";

export type Verb = JobAction["action"];
export type Target = { ids: string[] } | { filter: JobFilter };

export const VERBS: Record<
  Verb,
  { name: string; done: string; icon: IconName; danger?: boolean; says: string }
> = {
  retry: { name: "Retry", done: "Retried", icon: "retry", says: "Dead letters run again, as new jobs." },
  cancel: {
    name: "Cancel",
    done: "Cancelled",
    icon: "cancel",
    says: "Waiting jobs are cancelled; running jobs are asked to stop.",
  },
  reschedule: {
    name: "Reschedule",
    done: "Rescheduled",
    icon: "reschedule",
    says: "Waiting jobs get another time.",
  },
  delete: {
    name: "Delete",
    done: "Deleted",
    icon: "remove",
    danger: true,
    says: "Waiting jobs are deleted without a trace. To keep their history, cancel them instead.",
  },
};

// A year that is still being typed.
const EARLIEST = "1970";
const MOST_IDS = 1000;
const RATES: [string, string][] = [
  ["", "As fast as it goes"],
  ["1/s", "1 a second"],
  ["10/s", "10 a second"],
  ["50/s", "50 a second"],
  ["200/s", "200 a second"],
];
const LIMITS: [string, string][] = [
  ["", "All"],
  ["10", "10 jobs, to try"],
  ["100", "100 jobs"],
  ["1000", "1,000 jobs"],
];

interface Props {
  verb: Verb;
  target: Target;
  onDone: () => void;
  onClose: () => void;
}

/** Show what an action would do, then do it: with a filter, workers carry it on when this page is closed. */
export function JobActionDialog({ verb, target, onDone, onClose }: Props) {
  const [limit, setLimit] = useState("");
  const [rate, setRate] = useState("");
  const [at, setAt] = useState<string | null>(() => new Date(serverNow()).toISOString());
  const [doing, setDoing] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const [refused, setRefused] = useState<RefusedJob[]>([]);
  const { says, done, name: title } = VERBS[verb];
  const filter = "filter" in target ? target.filter : null;
  // Another time does not change which jobs they are.
  const preview = useResource(JSON.stringify([verb, target, limit]), (signal) =>
    api.actOnJobs({ ...asked(verb, target, limit, "", at), preview: true }, signal),
  );

  const act = async () => {
    setDoing(true);
    setError(null);
    try {
      const result = await api.actOnJobs({
        ...only(preview.value, asked(verb, target, limit, rate, at)),
        preview: false,
      });
      say(outcome(done, result), result.refused.length > 0 ? "warn" : "ok");
      setRefused(result.refused);
      onDone();
      if (result.refused.length > 0) preview.reload();
      else onClose();
    } catch (raised) {
      setError(asApiError(raised).message);
    } finally {
      setDoing(false);
    }
  };

  const matched = preview.loading ? null : (preview.value?.matched ?? 0);
  const foot = (
    <>
      <Button onClick={onClose}>Close</Button>
      <Go
        verb={verb}
        title={title}
        matched={matched}
        capped={preview.value !== null && !preview.value.looked.complete && limit === ""}
        busy={doing}
        late={verb === "reschedule" && (at === null || at < EARLIEST)}
        onGo={() => void act()}
      />
    </>
  );
  return (
    <Dialog title={filter ? `${title} all that match` : title} wide onClose={onClose} foot={foot}>
      <p>{says}</p>
      {filter && <FilterWords filter={filter} />}
      <div class="fields">
        {verb === "reschedule" && <When at={at} onChange={setAt} />}
        {filter && <Choice label="How many" value={limit} options={LIMITS} onChange={setLimit} />}
        {filter && !filter.text && (
          <Choice label="How fast" value={rate} options={RATES} onChange={setRate} />
        )}
      </div>
      <Loaded of={preview} skeleton={<Bones rows={5} />}>
        {(result) => <Preview result={result} verb={title.toLowerCase()} />}
      </Loaded>
      {refused.length > 0 && (
        <Refused jobs={refused} says={`${many(refused.length, "job was", "jobs were")} refused`} open />
      )}
      {error && <Problem text={error} />}
    </Dialog>
  );
}

/** What was shown, and nothing that came since. */
function only(shown: JobActionResult | null, action: JobAction): JobAction {
  if (shown === null || !action.filter) return action;
  const until = action.filter.created_until;
  const created_until = until && until < shown.at ? until : shown.at;
  return { ...action, filter: { ...action.filter, created_until } };
}

function asked(verb: Verb, target: Target, limit: string, rate: string, at: string | null): JobAction {
  const action: JobAction =
    "ids" in target
      ? { action: verb, ids: target.ids.slice(0, MOST_IDS) }
      : { action: verb, filter: target.filter, limit: limit ? Number(limit) : null, rate: rate || null };
  return verb === "reschedule" ? { ...action, at: at ?? new Date(serverNow()).toISOString() } : action;
}

interface GoProps {
  verb: Verb;
  title: string;
  /** To how many it would be done; null: not known yet. */
  matched: number | null;
  /** Whether there may be more than were counted. */
  capped: boolean;
  busy: boolean;
  late: boolean;
  onGo: () => void;
}

function Go({ verb, title, matched, capped, busy, late, onGo }: GoProps) {
  const { icon, danger } = VERBS[verb];
  const why = late ? "Say when." : matched === 0 ? "There is nothing to do." : null;
  return (
    <Button
      look={danger ? "danger" : "primary"}
      icon={icon}
      busy={busy || matched === null}
      why={why}
      onClick={onGo}
    >
      {matched === null || capped ? title : `${title} ${many(matched, "job")}`}
    </Button>
  );
}

function FilterWords({ filter }: { filter: JobFilter }) {
  return (
    <ul class="chips">
      {[...toQuery(filter)].map(([name, value]) => (
        <li key={name} class="chip">
          {name.replace("_", " ")}: <b>{value}</b>
        </li>
      ))}
    </ul>
  );
}

export function outcome(done: string, result: JobActionResult): string {
  const left = result.bulk?.refused ?? result.matched - result.done;
  const refused = left > 0 ? ` ${many(left, "job was", "jobs were")} refused.` : "";
  const more = result.bulk?.ended_at === null ? " The workers carry on with the rest." : "";
  return `${done} ${many(result.done, "job")}.${refused}${more}`;
}
