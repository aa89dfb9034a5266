import { api } from "../api";
import { flat } from "../detail";
import { count } from "../number";
import type { AuditLine } from "../openapi";
import { LookedLine } from "../parts/looked";
import { Page } from "../parts/page";
import { Refresh } from "../parts/refresh";
import { Bones, Failure, Notice } from "../parts/state";
import { type Column, Table } from "../parts/table";
import { Time } from "../parts/time";
import { useSearch } from "../searching";

const COLUMNS: Column<AuditLine>[] = [
  { name: "When", head: true, cell: (line) => <Time at={line.at} /> },
  {
    name: "Person",
    cell: (line) => (
      <>
        <b>{line.who}</b>
        <span class="below">{[line.role, line.credential, line.address].filter(Boolean).join(" · ")}</span>
      </>
    ),
  },
  { name: "Action", cell: (line) => <code>{line.action}</code> },
  { name: "Target", cell: (line) => line.target ?? <span class="muted">–</span> },
  {
    name: "Jobs",
    end: true,
    cell: (line) => (line.jobs === null ? <span class="muted">–</span> : count(line.jobs)),
  },
  { name: "Detail", wide: true, cell: (line) => <Detail of={line.detail} /> },
];

export function AuditPage() {
  const search = useSearch("audit", async (before, signal) => {
    const page = await api.listAudit({ before, limit: 50 }, signal);
    return { lines: page.items, next: page.next };
  });
  const { found } = search;
  return (
    <Page title="Audit" note="The audit log, newest first." aside={<Refresh />}>
      {found.error && found.looked === 0 ? (
        <Failure error={found.error} retry={search.look} />
      ) : (
        <>
          {found.lines.length > 0 && (
            <Table caption="Audit" columns={COLUMNS} rows={found.lines} id={(line) => line.id} />
          )}
          {found.lines.length === 0 && found.looking && <Bones rows={8} />}
          {found.lines.length === 0 && !found.looking ? (
            <Notice icon="audit" title="No actions yet">
              <p>Every action of a person is written down here.</p>
            </Notice>
          ) : (
            <LookedLine found={found} nouns="entries" look={search.look} stop={search.stop} />
          )}
        </>
      )}
    </Page>
  );
}

function Detail({ of }: { of: Record<string, unknown> }) {
  const entries = flat(of);
  if (entries.length === 0) return <span class="muted">–</span>;
  return (
    <ul class="counts">
      {entries.map(([name, value]) => (
        <li key={name}>
          {name.replaceAll("_", " ")} <b>{value}</b>
        </li>
      ))}
    </ul>
  );
}
