import { useEffect, useState } from "preact/hooks";
import { api } from "../api";
import { fromQuery, isEmpty, toQuery } from "../filter";
import { many } from "../number";
import type { JobFilter } from "../openapi";
import { ActButton, Button } from "../parts/button";
import { Filters } from "../parts/filters";
import { JobActionDialog, type Target, VERBS, type Verb } from "../parts/job-action";
import { JobTable } from "../parts/job-table";
import { LookedLine } from "../parts/looked";
import { Page } from "../parts/page";
import { Refresh } from "../parts/refresh";
import { Bones, Failure, Notice } from "../parts/state";
import { go, route, to } from "../route";
import { useSearch } from "../searching";

const ORDER: Verb[] = ["retry", "cancel", "reschedule", "delete"];

export function JobsPage() {
  const filter = fromQuery(route.value.query);
  const key = toQuery(filter).toString();
  const search = useSearch(key, async (before, signal) => {
    const page = await api.listJobs({ ...filter, before, limit: 50 }, signal);
    return { lines: page.items, next: page.next, looked: page.looked };
  });
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [asking, setAsking] = useState<{ verb: Verb; target: Target } | null>(null);
  // biome-ignore lint/correctness/useExhaustiveDependencies: another search, another choice
  useEffect(() => setChosen(new Set()), [key]);

  const { found } = search;
  const done = () => {
    setChosen(new Set());
    search.again();
  };
  return (
    <Page title="Jobs" note="Newest first." aside={<Refresh />}>
      <Filters filter={filter} onChange={(next) => go(to("jobs", toQuery(next)))} />
      {found.error && found.lines.length === 0 && found.looked === 0 ? (
        <Failure error={found.error} retry={search.look} />
      ) : (
        <>
          <Acting
            chosen={chosen}
            filter={filter}
            onAct={(verb, target) => setAsking({ verb, target })}
            onClear={() => setChosen(new Set())}
          />
          {found.lines.length > 0 && <JobTable jobs={found.lines} chosen={chosen} onChoose={setChosen} />}
          {found.lines.length === 0 && found.looking && found.looked === 0 && <Bones rows={10} />}
          {found.lines.length === 0 && !found.looking && !found.error && <Nothing filter={filter} />}
          <LookedLine found={found} nouns="jobs" look={search.look} stop={search.stop} />
        </>
      )}
      {asking && <JobActionDialog {...asking} onDone={done} onClose={() => setAsking(null)} />}
    </Page>
  );
}

interface ActingProps {
  chosen: ReadonlySet<string>;
  filter: JobFilter;
  onAct: (verb: Verb, target: Target) => void;
  onClear: () => void;
}

/** What can be done: to those that are chosen, else to all that match. */
function Acting({ chosen, filter, onAct, onClear }: ActingProps) {
  const some = chosen.size > 0;
  const empty = isEmpty(filter)
    ? "An empty filter would act on everything: say at least one thing of the jobs."
    : null;
  const target: Target = some ? { ids: [...chosen] } : { filter };
  return (
    <section class={some ? "acting some" : "acting"} aria-label="Actions">
      <p role="status">{some ? `${many(chosen.size, "job")} chosen` : "All that match:"}</p>
      <div class="buttons">
        {ORDER.map((verb) => (
          <ActButton
            key={verb}
            small
            icon={VERBS[verb].icon}
            look={verb === "delete" ? "danger" : "plain"}
            why={some ? null : empty}
            onClick={() => onAct(verb, target)}
          >
            {VERBS[verb].name}…
          </ActButton>
        ))}
        {some && (
          <Button small look="quiet" onClick={onClear}>
            Choose none
          </Button>
        )}
      </div>
    </section>
  );
}

function Nothing({ filter }: { filter: JobFilter }) {
  if (isEmpty(filter)) {
    return (
      <Notice icon="jobs" title="No jobs yet">
        <p>They are shown here once something is enqueued.</p>
      </Notice>
    );
  }
  return (
    <Notice icon="search" title="No such jobs">
      <p>None of those that were searched match all of the filters.</p>
      <Button onClick={() => go(to("jobs"))}>Clear filters</Button>
    </Notice>
  );
}
