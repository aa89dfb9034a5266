import { useState } from "preact/hooks";
import { api } from "../api";
import { serverNow } from "../clock";
import { before, exportId, period, SOURCES, step } from "../exports";
import { bytes, count, share } from "../number";
import type { ArchiveSource, ArchiveSummary, ExportLine, RetentionLine } from "../openapi";
import { Badge } from "../parts/badge";
import { ActButton, Button } from "../parts/button";
import { Choice } from "../parts/field";
import { Icon } from "../parts/icon";
import { Page, Panel } from "../parts/page";
import { Refresh } from "../parts/refresh";
import { RetentionDialog } from "../parts/retention-dialog";
import { Bones, Loaded, Notice } from "../parts/state";
import { type Column, Table } from "../parts/table";
import { Time } from "../parts/time";
import { useResource } from "../resource";

const EVERY_MS = 10_000;
const RUNNING_MS = 2000;
const FIRST = 48;
const MOST = 1000;

export function ArchivePage() {
  const archive = useResource("archive", api.getArchive, EVERY_MS);
  const [edited, setEdited] = useState<RetentionLine | null>(null);
  const summary = archive.value;
  return (
    <Page
      title="Archive"
      note={
        summary?.bucket && (
          <>
            Closed days are files in <code>{summary.bucket}</code>.{" "}
            {summary.next_drop && <NextDrop at={summary.next_drop} />}
          </>
        )
      }
      aside={<Refresh />}
    >
      <Loaded of={archive} skeleton={<Bones rows={6} />}>
        {(shown) => (
          <>
            <Off summary={shown} />
            {shown.sources.length > 0 && (
              <Panel title="Sources" note="All files of each source, and those on their way.">
                <Table
                  caption="Sources"
                  columns={SOURCE_COLUMNS}
                  rows={shown.sources}
                  id={(source) => source.source}
                />
              </Panel>
            )}
            <Retention lines={shown.retention} onEdit={setEdited} />
            {(shown.sources.length > 0 || shown.archived) && <Periods sources={shown.sources} />}
          </>
        )}
      </Loaded>
      {edited && <RetentionDialog kept={edited} onDone={archive.reload} onClose={() => setEdited(null)} />}
    </Page>
  );
}

/** Says that nothing is archived, or that this process cannot read the archive, and what to set. */
function Off({ summary: { configured, archived } }: { summary: ArchiveSummary }) {
  if (configured) return null;
  if (archived)
    return (
      <div class="problem tone-warn">
        <Icon name="info" />
        <p>
          Days are archived, and this process cannot read the files: set <code>HOLDFAST_ARCHIVE_BUCKET</code>{" "}
          for it as for the workers, and start it again.
        </p>
      </div>
    );
  return (
    <Notice icon="archive" title="The archive is off">
      <p>No bucket is set, so ended rows are deleted when their retention ends.</p>
      <p>
        To keep them as files, set <code>HOLDFAST_ARCHIVE_BUCKET</code>, for example to{" "}
        <code class="nowrap">s3://my-bucket/holdfast</code>, for the workers and for this process, and start
        them again.
      </p>
    </Notice>
  );
}

const SOURCE_COLUMNS: Column<ArchiveSource>[] = [
  { name: "Source", head: true, cell: ({ source }) => <SourceName name={source} /> },
  {
    name: "From",
    cell: ({ first_day, ends_on }) => (
      <>
        <span class="nowrap">{first_day}</span>
        <span class="below nowrap">to {before(ends_on)}</span>
      </>
    ),
  },
  { name: "Rows", end: true, cell: ({ rows }) => count(rows) },
  { name: "Size", end: true, cell: ({ bytes: size }) => bytes(size) },
  {
    name: "Periods",
    cell: ({ unfinished, verified, dropped }) => (
      <span class="counts">
        <Some number={unfinished} what="unfinished" />
        <Some number={verified} what="verified" />
        <Some number={dropped} what="in the archive only" />
      </span>
    ),
  },
  { name: "Next drop", cell: ({ next_drop }) => <DropTime at={next_drop} /> },
];

function Some({ number, what }: { number: number; what: string }) {
  if (number === 0) return null;
  return (
    <span>
      <b>{count(number)}</b> {what}
    </span>
  );
}

function SourceName({ name }: { name: string }) {
  return (
    <>
      <code>{name}</code>
      <span class="below">{SOURCES[name] ?? "a table of the application"}</span>
    </>
  );
}

/** Each day or month; while one is exported, its progress is asked for every two seconds. */
function Periods({ sources }: { sources: ArchiveSource[] }) {
  const [source, setSource] = useState("");
  const [limit, setLimit] = useState(FIRST);
  const [running, setRunning] = useState(false);
  const exports = useResource(
    `exports ${source}`,
    async (signal) => {
      const page = await api.listExports({ source: source || null, limit }, signal);
      setRunning(page.items.some((line) => line.running));
      return page;
    },
    running ? RUNNING_MS : EVERY_MS,
  );
  const more = () => {
    setLimit(Math.min(MOST, limit * 4));
    exports.reload();
  };
  return (
    <Panel
      title="Days"
      note="Running and failed exports first, then the newest. A day is exported when it is over, read back, and dropped when its retention ends."
      aside={
        sources.length > 1 && (
          <Choice
            label="Source"
            value={source}
            options={[["", "all"], ...sources.map((one): [string, string] => [one.source, one.source])]}
            onChange={setSource}
          />
        )
      }
    >
      <Loaded of={exports} skeleton={<Bones rows={6} />}>
        {({ items: lines, complete }) =>
          lines.length === 0 ? (
            <p class="muted">Nothing was exported yet: the runner archiveExport does it once a day.</p>
          ) : (
            <>
              <Table caption="Days" columns={PERIOD_COLUMNS} rows={lines} id={exportId} />
              {!complete && <More shown={lines.length} onMore={more} />}
            </>
          )
        }
      </Loaded>
    </Panel>
  );
}

function More({ shown, onMore }: { shown: number; onMore: () => void }) {
  if (shown >= MOST)
    return (
      <p class="note">
        The first {count(shown)} are shown. Choose one source to see older ones, or ask the API.
      </p>
    );
  return (
    <div class="buttons more">
      <Button onClick={onMore}>Show older</Button>
    </div>
  );
}

const PERIOD_COLUMNS: Column<ExportLine>[] = [
  {
    name: "Day",
    head: true,
    cell: (line) => (
      <>
        <span class="nowrap">{period(line)}</span> <code class="muted">{line.source}</code>
      </>
    ),
  },
  { name: "State", wide: true, cell: (line) => <State line={line} /> },
  {
    name: "Rows",
    end: true,
    cell: ({ rows, rows_done, running }) => {
      const known = running ? rows_done : rows;
      return known === null ? <None /> : count(known);
    },
  },
  { name: "Size", end: true, cell: ({ bytes: size }) => (size === null ? <None /> : bytes(size)) },
  { name: "Leaves the database", cell: (line) => <Leaves line={line} /> },
];

function State({ line }: { line: ExportLine }) {
  const { name, tone, icon } = step(line);
  return (
    <>
      <Badge tone={tone} icon={icon}>
        {name}
      </Badge>
      {line.running && (
        <span class="below export-progress">
          <progress
            max={1}
            {...(line.progress !== null && { value: line.progress })}
            aria-label={`Progress of ${line.source}, ${period(line)}`}
          />
          {line.progress !== null && share(line.progress, 1)}
        </span>
      )}
      {line.error && <span class="below text-bad">{line.error}</span>}
    </>
  );
}

function Leaves({ line: { state, dropped_at, drop_eligible_at } }: { line: ExportLine }) {
  if (state === "dropped")
    return (
      <span>
        left <Time at={dropped_at} />
      </span>
    );
  return <DropTime at={drop_eligible_at} />;
}

function DropTime({ at }: { at: string | null }) {
  if (at === null) return <None />;
  return Date.parse(at) <= serverNow() ? <span>with the next cleanup</span> : <Time at={at} />;
}

function NextDrop({ at }: { at: string }) {
  return (
    <>
      Next drop: <DropTime at={at} />.
    </>
  );
}

interface RetentionProps {
  lines: RetentionLine[];
  onEdit: (line: RetentionLine) => void;
}

function Retention({ lines, onEdit }: RetentionProps) {
  const columns: Column<RetentionLine>[] = [
    { name: "Rows of", head: true, cell: ({ family }) => <SourceName name={family} /> },
    { name: "Days", end: true, cell: ({ days }) => count(days) },
    {
      name: "Then",
      cell: ({ archived }) => (archived ? "dropped once verified in the archive" : "deleted"),
    },
    {
      name: "Actions",
      mute: true,
      end: true,
      cell: (line) =>
        line.changeable ? (
          <div class="buttons end">
            <ActButton small icon="edit" label={`Change ${line.family}`} onClick={() => onEdit(line)}>
              Change…
            </ActButton>
          </div>
        ) : (
          <span class="muted">follows its {line.family === "attempt" ? "jobs" : "events"}</span>
        ),
    },
  ];
  return (
    <Panel title="Retention" note="How long ended rows stay in the database.">
      <Table caption="Retention" columns={columns} rows={lines} id={(line) => line.family} />
    </Panel>
  );
}

function None() {
  return <span class="muted">–</span>;
}
