import { useEffect, useState } from "preact/hooks";
import { api } from "../api";
import { isStatus, STATUSES } from "../filter";
import type { ChainItem } from "../openapi";
import { StatusBadge } from "../parts/badge";
import { Button } from "../parts/button";
import { Choice, Field } from "../parts/field";
import { LookedLine } from "../parts/looked";
import { Page } from "../parts/page";
import { Refresh } from "../parts/refresh";
import { Bones, Failure, Notice } from "../parts/state";
import { type Column, Table } from "../parts/table";
import { Time } from "../parts/time";
import { go, route, to } from "../route";
import { useSearch } from "../searching";
import { between, duration } from "../time";

const COLUMNS: Column<ChainItem>[] = [
  {
    name: "Chain",
    head: true,
    cell: (chain) => (
      <a class="number" href={to(["chains", chain.id])}>
        #{chain.id}
      </a>
    ),
  },
  { name: "Status", cell: (chain) => <StatusBadge status={chain.status} /> },
  { name: "Begins with", wide: true, cell: (chain) => <code>{chain.kind}</code> },
  {
    name: "Now at",
    cell: (chain) =>
      chain.last_id === chain.id ? (
        <span class="muted">its first job</span>
      ) : (
        <a href={to(["jobs", chain.last_id])}>
          <code>{chain.last_kind}</code>
        </a>
      ),
  },
  { name: "Created", cell: (chain) => <Time at={chain.created_at} /> },
  { name: "Ended", cell: (chain) => <Time at={chain.finished_at} none="not yet" /> },
  {
    name: "Took",
    end: true,
    cell: (chain) => (chain.finished_at ? duration(between(chain.created_at, chain.finished_at)) : "–"),
  },
];

export function ChainsPage() {
  const { query } = route.value;
  const kind = query.get("kind") || null;
  const asked = query.get("status");
  const status = isStatus(asked) ? asked : null;
  const search = useSearch(query.toString(), async (before, signal) => {
    const page = await api.listChains({ kind, status, before, limit: 50 }, signal);
    return { lines: page.items, next: page.next, looked: page.looked };
  });
  const { found } = search;
  return (
    <Page title="Chains" note="Jobs that follow one another, newest first." aside={<Refresh />}>
      <ChainFilters kind={kind ?? ""} status={status ?? ""} />
      {found.error && found.looked === 0 ? (
        <Failure error={found.error} retry={search.look} />
      ) : (
        <>
          {found.lines.length > 0 && (
            <Table caption="Chains" columns={COLUMNS} rows={found.lines} id={(chain) => chain.id} />
          )}
          {found.lines.length === 0 && found.looking && found.looked === 0 && <Bones rows={10} />}
          {found.lines.length === 0 && !found.looking && !found.error && (
            <Notice icon="chains" title="No chains">
              <p>
                {kind || status
                  ? "None of those that were searched match."
                  : "Every job begins one: enqueue a job."}
              </p>
            </Notice>
          )}
          <LookedLine found={found} nouns="chains" look={search.look} stop={search.stop} />
        </>
      )}
    </Page>
  );
}

function ChainFilters({ kind, status }: { kind: string; status: string }) {
  const [draft, setDraft] = useState(kind);
  const [chosen, setChosen] = useState(status);
  useEffect(() => {
    setDraft(kind);
    setChosen(status);
  }, [kind, status]);
  const search = (next: string) => go(to("chains", { kind: draft, status: next }));
  return (
    <form
      class="filters"
      aria-label="Filters"
      onSubmit={(event) => {
        event.preventDefault();
        search(chosen);
      }}
    >
      <div class="fields">
        <Field label="Kind of the first job" value={draft} onInput={setDraft} maxLength={200} mark="search" />
        <Choice
          label="Status"
          value={chosen}
          options={[["", "any"], ...STATUSES.map((one): [string, string] => [one, one])]}
          onChange={(next) => {
            setChosen(next);
            search(next);
          }}
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
