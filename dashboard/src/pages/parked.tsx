import { useState } from "preact/hooks";
import { api } from "../api";
import type { ParkedLine } from "../openapi";
import { Badge } from "../parts/badge";
import { ActButton } from "../parts/button";
import { LookedLine } from "../parts/looked";
import { Page } from "../parts/page";
import { Refresh } from "../parts/refresh";
import { ReleaseDialog } from "../parts/relay-dialogs";
import { Bones, Failure, Notice } from "../parts/state";
import { type Column, Table } from "../parts/table";
import { Time } from "../parts/time";
import { to } from "../route";
import { useSearch } from "../searching";

export function ParkedPage({ name }: { name: string }) {
  const [releasing, setReleasing] = useState<{ of: string | null } | null>(null);
  const search = useSearch(`parked ${name}`, async (before, signal) => {
    const page = await api.listParkedEvents(name, { before, limit: 50 }, signal);
    return { lines: page.items, next: page.next };
  });
  const { found } = search;
  const columns: Column<ParkedLine>[] = [
    ...COLUMNS,
    {
      name: "Actions",
      mute: true,
      end: true,
      cell: ({ key, released_at }) =>
        key !== null &&
        released_at === null && (
          <ActButton
            small
            icon="release"
            label={`Release key ${key}`}
            onClick={() => setReleasing({ of: key })}
          >
            Release key…
          </ActButton>
        ),
    },
  ];
  const aside = (
    <>
      <ActButton
        icon="release"
        why={found.lines.length === 0 ? "Nothing is parked." : null}
        onClick={() => setReleasing({ of: null })}
      >
        Release all…
      </ActButton>
      <Refresh />
    </>
  );
  return (
    <Page
      title={`Parked events of ${name}`}
      trail={<a href={to("relays")}>Relays</a>}
      note="Events that the sink refused, and those that wait behind them."
      aside={aside}
    >
      {found.error && found.looked === 0 ? (
        <Failure error={found.error} retry={search.look} />
      ) : (
        <>
          {found.lines.length > 0 && (
            <Table
              caption="Parked events"
              columns={columns}
              rows={found.lines}
              id={(line) => line.event_id}
            />
          )}
          {found.lines.length === 0 && found.looking && <Bones rows={6} />}
          {found.lines.length === 0 && !found.looking ? (
            <Notice icon="completed" title="Nothing is parked" tone="ok" />
          ) : (
            <LookedLine found={found} nouns="parked events" look={search.look} stop={search.stop} />
          )}
        </>
      )}
      {releasing && (
        <ReleaseDialog
          name={name}
          of={releasing.of}
          onDone={search.again}
          onClose={() => setReleasing(null)}
        />
      )}
    </Page>
  );
}

const COLUMNS: Column<ParkedLine>[] = [
  { name: "Event", head: true, cell: (line) => <span class="number">#{line.event_id}</span> },
  { name: "Topic", cell: (line) => <code>{line.topic ?? "–"}</code> },
  { name: "Key", cell: (line) => line.key ?? <span class="muted">–</span> },
  {
    name: "State",
    cell: (line) => {
      if (line.released_at)
        return (
          <Badge tone="busy" icon="release">
            released
          </Badge>
        );
      return line.holds_key ? (
        <Badge tone="bad" icon="blocked">
          holds its key
        </Badge>
      ) : (
        <Badge tone="warn" icon="pause">
          parked
        </Badge>
      );
    },
  },
  { name: "Parked", cell: (line) => <Time at={line.parked_at} /> },
  {
    name: "Error",
    wide: true,
    cell: (line) => (
      <span class="run-error">
        {line.error_code && <code class="text-bad">{line.error_code}</code>}{" "}
        {line.error ?? "waits behind another"}
      </span>
    ),
  },
];
