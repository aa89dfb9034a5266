import { useEffect, useState } from "preact/hooks";
import { useAction } from "../action";
import { api } from "../api";
import { compact, count, many } from "../number";
import type {
  DeadLetterAction,
  DeadLetterGroup,
  DeadLetters,
  JobFilter,
  ListDeadLettersQuery,
} from "../openapi";
import { RunningBulkActions } from "../parts/bulk-actions";
import { ActButton, Button } from "../parts/button";
import { Field } from "../parts/field";
import { Icon } from "../parts/icon";
import { JobActionDialog } from "../parts/job-action";
import { Page } from "../parts/page";
import { Refresh } from "../parts/refresh";
import { Bones, Loaded, Notice } from "../parts/state";
import { Time } from "../parts/time";
import { useResource } from "../resource";
import { go, route, to } from "../route";
import { absolute, fromField, toField } from "../time";

const FIELDS = ["kind", "queue", "created_from", "created_until"] as const;

type LetterSearch = Omit<ListDeadLettersQuery, "dismissed">;

export function DeadLettersPage() {
  const { query } = route.value;
  const search: LetterSearch = Object.fromEntries(FIELDS.map((field) => [field, query.get(field)]));
  const dismissed = query.get("dismissed") === "true";
  const letters = useResource(`dead letters ${query}`, (signal) =>
    api.listDeadLetters({ ...search, dismissed }, signal),
  );
  const [group, setGroup] = useState<DeadLetterGroup | null>(null);
  const { busy, run } = useAction(letters.reload);
  const dismiss = (one: DeadLetterGroup) => {
    const { kind, queue, error_code, last_at, dismissed_by } = one;
    const action: DeadLetterAction =
      dismissed_by === null
        ? { action: "dismiss", kind, queue, error_code, last_at }
        : { action: "restore", kind, queue, error_code };
    run(keyOf(one), () => api.actOnDeadLetters(action));
  };
  return (
    <Page title="Dead letters" note="Jobs that failed for good, grouped by error." aside={<Refresh />}>
      <RunningBulkActions />
      <LetterFilters search={search} />
      <Loaded of={letters} skeleton={<Bones rows={4} tall />}>
        {(value) => <Groups value={value} busy={busy} onRetry={setGroup} onDismiss={dismiss} />}
      </Loaded>
      <p class="note">
        {dismissed ? (
          <a href={to("dead-letters", { ...search, dismissed: null })}>Hide dismissed groups</a>
        ) : (
          <a href={to("dead-letters", { ...search, dismissed: "true" })}>Show dismissed groups too</a>
        )}
      </p>
      {group && (
        <JobActionDialog
          verb="retry"
          target={{ filter: filterOf(group, search) }}
          onDone={letters.reload}
          onClose={() => setGroup(null)}
        />
      )}
    </Page>
  );
}

function filterOf(group: DeadLetterGroup, search: LetterSearch): JobFilter {
  const { kind, queue, error_code } = group;
  const filter: JobFilter = { status: "failed", kind, queue, error_code };
  if (search.created_from) filter.created_from = search.created_from;
  if (search.created_until) filter.created_until = search.created_until;
  return filter;
}

/** What tells a group from the others. */
function keyOf({ kind, queue, error_code }: DeadLetterGroup): string {
  return `${kind} ${queue} ${error_code}`;
}

interface GroupsProps {
  value: DeadLetters;
  /** The group that is being dismissed. */
  busy: string | null;
  onRetry: (group: DeadLetterGroup) => void;
  onDismiss: (group: DeadLetterGroup) => void;
}

function Groups({ value, busy, onRetry, onDismiss }: GroupsProps) {
  const { items: groups, looked } = value;
  if (groups.length === 0 && !looked.complete) {
    return (
      <Notice icon="search" title="None among the newest">
        <p>
          The newest {many(looked.jobs, "dead letter")}
          {looked.back_to && `, back to ${absolute(looked.back_to)},`} are not of this sort, or run again
          already. Older ones were not searched: choose times before then to see them.
        </p>
      </Notice>
    );
  }
  if (groups.length === 0) {
    return (
      <Notice icon="completed" title="No dead letters" tone="ok">
        <p>Nothing has failed for good{looked.back_to && ` since ${absolute(looked.back_to)}`}.</p>
      </Notice>
    );
  }
  return (
    <>
      <ul class="letters">
        {groups.map((group) => (
          <Group
            key={keyOf(group)}
            group={group}
            busy={busy === keyOf(group)}
            onRetry={onRetry}
            onDismiss={onDismiss}
          />
        ))}
      </ul>
      <p class="note">
        Searched {many(looked.jobs, "dead letter")}
        {looked.back_to && `, back to ${absolute(looked.back_to)}`}
        {looked.complete ? "." : ". Older ones are not counted here: choose times before then to see them."}
      </p>
    </>
  );
}

interface GroupProps {
  group: DeadLetterGroup;
  busy: boolean;
  onRetry: (group: DeadLetterGroup) => void;
  onDismiss: (group: DeadLetterGroup) => void;
}

function Group({ group, busy, onRetry, onDismiss }: GroupProps) {
  const { kind, queue, error_code, error, jobs, first_at, last_at, newest, dismissed_by, versions } = group;
  return (
    <li class="letter" aria-label={`${kind}: ${error_code}`}>
      <p class="letter-count" title={count(jobs)}>
        <b>{compact(jobs)}</b>
        {jobs === 1 ? "job" : "jobs"}
      </p>
      <div class="letter-text">
        <h2>
          <Icon name="failed" /> {error_code}
        </h2>
        <p>
          <code>{kind}</code> in {queue}
        </p>
        {error && <p class="letter-error">{error}</p>}
        {versions.length > 0 && (
          <ul class="letter-versions" aria-label="Versions of the application">
            {versions.map((one) => (
              <li key={one.version}>
                version <b>{one.version}</b>: {count(one.jobs)}, first <Time at={one.first_at} />
              </li>
            ))}
          </ul>
        )}
        <p class="muted">
          first <Time at={first_at} />, last <Time at={last_at} />, newest is{" "}
          <a href={to(["jobs", newest])}>#{newest}</a>
          {dismissed_by !== null && (
            <>
              ; dismissed by {dismissed_by}, <Time at={group.dismissed_at} />
            </>
          )}
        </p>
      </div>
      <div class="buttons">
        <ActButton icon="retry" onClick={() => onRetry(group)} label={`Retry ${kind}, ${error_code}`}>
          Retry…
        </ActButton>
        <ActButton
          icon={dismissed_by === null ? "dismiss" : "replay"}
          busy={busy}
          label={`${dismissed_by === null ? "Dismiss" : "Restore"} ${kind}, ${error_code}`}
          onClick={() => onDismiss(group)}
        >
          {dismissed_by === null ? "Dismiss" : "Restore"}
        </ActButton>
        <a class="button plain" href={to("jobs", { status: "failed", kind, queue, error_code })}>
          <span>Jobs</span>
        </a>
      </div>
    </li>
  );
}

function LetterFilters({ search }: { search: LetterSearch }) {
  const [draft, setDraft] = useState(search);
  // biome-ignore lint/correctness/useExhaustiveDependencies: another search, another draft
  useEffect(() => setDraft(search), [JSON.stringify(search)]);
  const set = (change: LetterSearch) => setDraft({ ...draft, ...change });
  return (
    <form
      class="filters"
      aria-label="Filters"
      onSubmit={(event) => {
        event.preventDefault();
        go(to("dead-letters", { ...draft }));
      }}
    >
      <div class="fields">
        <Field
          label="Kind"
          value={draft.kind ?? ""}
          onInput={(kind) => set({ kind })}
          maxLength={200}
          mark="search"
        />
        <Field label="Queue" value={draft.queue ?? ""} onInput={(queue) => set({ queue })} maxLength={200} />
        <Field
          label="Created from"
          type="datetime-local"
          value={toField(draft.created_from)}
          onInput={(value) => set({ created_from: fromField(value) })}
        />
        <Field
          label="Created until"
          type="datetime-local"
          value={toField(draft.created_until)}
          onInput={(value) => set({ created_until: fromField(value) })}
        />
        <div class="buttons fields-end">
          <Button type="submit" look="primary" icon="search">
            Search
          </Button>
        </div>
      </div>
    </form>
  );
}
