import { api } from "../api";
import { compact, count, many } from "../number";
import type { DatabaseFigures, DatabaseLine } from "../openapi";
import { Badge } from "../parts/badge";
import type { IconName } from "../parts/icon";
import { Page } from "../parts/page";
import { Refresh } from "../parts/refresh";
import { Bones, Loaded } from "../parts/state";
import { type Column, Table } from "../parts/table";
import { Time } from "../parts/time";
import { useResource } from "../resource";
import { to } from "../route";
import type { Tone } from "../story";
import { coarse, duration } from "../time";

const EVERY_MS = 3_000;
const STATES: Record<DatabaseLine["state"], [Tone, IconName]> = {
  serving: ["ok", "play"],
  draining: ["warn", "draining"],
  "not answering": ["bad", "warning"],
};

/** Every database, and how much waits in each. */
export function DatabasesPage() {
  const databases = useResource("databases", api.listDatabases, EVERY_MS);
  return (
    <Page title="Databases" note="Choose one to see its jobs." aside={<Refresh />}>
      <Loaded of={databases} skeleton={<Bones rows={5} />}>
        {({ items: lines }) => (
          <>
            <Sums lines={lines} />
            <Table
              caption="Databases"
              columns={COLUMNS}
              rows={lines}
              id={(line) => line.name}
              tone={(line) => (line.state === "not answering" ? "faded" : undefined)}
            />
          </>
        )}
      </Loaded>
    </Page>
  );
}

/** The sums over the databases that answer. */
function Sums({ lines }: { lines: DatabaseLine[] }) {
  const known = lines.flatMap(({ state, figures }) =>
    figures && state !== "not answering" ? [figures] : [],
  );
  const sum = (of: (figures: DatabaseFigures) => number) => known.reduce((all, one) => all + of(one), 0);
  const due = sum((one) => one.due);
  const failed = sum((one) => one.failed_hour);
  const problems = sum((one) => one.problems);
  const oldest = Math.max(0, ...known.map((one) => one.oldest_due_seconds));
  const silent = lines.length - known.length;
  const tiles: { name: string; value: string; below: string; tone?: "bad" | undefined }[] = [
    {
      name: "Answering",
      value: `${count(known.length)} of ${count(lines.length)}`,
      below: silent > 0 ? `${many(silent, "database")} not answering` : "all of them",
      tone: silent > 0 ? "bad" : undefined,
    },
    { name: "Due now", value: compact(due), below: `of ${compact(sum((one) => one.unfinished))} unfinished` },
    {
      name: "Oldest waiting job",
      value: due > 0 ? coarse(oldest) : "–",
      below: due > 0 ? "since it was due" : "nothing is due",
    },
    { name: "Completed", value: compact(sum((one) => one.completed_minute)), below: "last minute" },
    { name: "Failed", value: compact(failed), below: "last hour", tone: failed > 0 ? "bad" : undefined },
    {
      name: "Problems",
      value: count(problems),
      below: problems > 0 ? "see each overview" : "all is well",
      tone: problems > 0 ? "bad" : undefined,
    },
  ];
  return (
    <ul class="tiles">
      {tiles.map((tile) => (
        <li key={tile.name} class={tile.tone && `tone-${tile.tone}`}>
          <div class="tile">
            <span class="tile-name">{tile.name}</span>
            <b>{tile.value}</b>
            <span class="tile-below">{tile.below}</span>
          </div>
        </li>
      ))}
    </ul>
  );
}

const COLUMNS: Column<DatabaseLine>[] = [
  {
    name: "Database",
    head: true,
    cell: ({ name, state, why, figures }) => (
      <>
        <a href={to("", {}, name)}>{name}</a>
        {state === "not answering" && (
          <span class="below">
            {why}{" "}
            {figures ? (
              <>
                Shown as of <Time at={figures.at} />.
              </>
            ) : null}
          </span>
        )}
      </>
    ),
  },
  {
    name: "State",
    cell: ({ state, draining }) => {
      const [tone, icon] = STATES[state];
      return (
        <>
          <Badge tone={tone} icon={icon}>
            {state}
          </Badge>
          {draining && state !== "draining" && (
            <>
              {" "}
              <Badge tone="warn" icon="draining">
                draining
              </Badge>
            </>
          )}
        </>
      );
    },
  },
  figure("Due", (one) => compact(one.due)),
  figure("Oldest", (one) => (one.due > 0 ? duration(one.oldest_due_seconds) : <span class="muted">–</span>)),
  figure("Unfinished", (one) => compact(one.unfinished)),
  figure("Completed a minute", (one) => compact(one.completed_minute)),
  figure("Failed, 1 h", (one) => (
    <span class={one.failed_hour > 0 ? "text-bad" : "muted"}>{compact(one.failed_hour)}</span>
  )),
  figure("Workers", (one) => (
    <span class={one.workers > 0 ? undefined : "text-bad"}>{count(one.workers)}</span>
  )),
  figure("Problems", (one) => (
    <span class={one.problems > 0 ? "text-bad" : "muted"}>{count(one.problems)}</span>
  )),
];

function figure(
  name: string,
  cell: (figures: DatabaseFigures) => ReturnType<Column<DatabaseLine>["cell"]>,
): Column<DatabaseLine> {
  return {
    name,
    end: true,
    cell: ({ figures }) => (figures ? cell(figures) : <span class="muted">–</span>),
  };
}
