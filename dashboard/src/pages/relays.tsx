import { useState } from "preact/hooks";
import { useAction } from "../action";
import { api } from "../api";
import { compact, count, many } from "../number";
import type { PartitionLine, SubscriptionLine } from "../openapi";
import { Badge } from "../parts/badge";
import { ActButton } from "../parts/button";
import { Page } from "../parts/page";
import { Refresh } from "../parts/refresh";
import { ReplayDialog, SkipDialog } from "../parts/relay-dialogs";
import { Bones, Loaded, Notice } from "../parts/state";
import { type Column, Table } from "../parts/table";
import { Time } from "../parts/time";
import { useResource } from "../resource";
import { to } from "../route";
import { duration } from "../time";

const EVERY_MS = 10_000;
const BEHIND_SECONDS = 60;

type Asking = { what: "replay" | "skip"; name: string };

export function RelaysPage() {
  const relays = useResource("subscriptions", api.listSubscriptions, EVERY_MS);
  const [asking, setAsking] = useState<Asking | null>(null);
  const close = () => setAsking(null);
  return (
    <Page
      title="Relays"
      note="Subscriptions: readers of events, each with its own position."
      aside={<Refresh />}
    >
      <Loaded of={relays} skeleton={<Bones rows={3} tall />}>
        {({ items: subscriptions }) =>
          subscriptions.length === 0 ? (
            <Notice icon="relays" title="No subscription yet">
              <p>A worker stores those of its application when it starts.</p>
            </Notice>
          ) : (
            <ul class="relays">
              {subscriptions.map((line) => (
                <Relay key={line.name} line={line} onAsk={setAsking} onDone={relays.reload} />
              ))}
            </ul>
          )
        }
      </Loaded>
      {asking?.what === "replay" && (
        <ReplayDialog name={asking.name} onDone={relays.reload} onClose={close} />
      )}
      {asking?.what === "skip" && <SkipDialog name={asking.name} onDone={relays.reload} onClose={close} />}
    </Page>
  );
}

interface RelayProps {
  line: SubscriptionLine;
  onAsk: (asking: Asking) => void;
  onDone: () => void;
}

function Relay({ line, onAsk, onDone }: RelayProps) {
  const { busy, run } = useAction(onDone);
  const { name, paused } = line;
  const action = paused ? "resume" : "pause";
  return (
    <li class="panel relay" aria-label={name}>
      <header>
        <h2>{name}</h2>
        <State line={line} />
        <p class="note">to {line.target}</p>
        <div class="buttons panel-aside">
          <ActButton
            small
            icon={paused ? "play" : "pause"}
            label={`${paused ? "Resume" : "Pause"} ${name}`}
            busy={busy !== null}
            onClick={() => run(action, () => api.actOnSubscription(name, { action }))}
          >
            {paused ? "Resume" : "Pause"}
          </ActButton>
          <ActButton
            small
            icon="replay"
            label={`Replay ${name}`}
            onClick={() => onAsk({ what: "replay", name })}
          >
            Replay…
          </ActButton>
          <ActButton
            small
            look="danger"
            icon="skip"
            label={`Skip ${name}`}
            onClick={() => onAsk({ what: "skip", name })}
          >
            Skip…
          </ActButton>
        </div>
      </header>
      {line.elsewhere && (
        <p class="problem tone-bad">
          This database was restored from another server, and nothing is read:{" "}
          <code>holdfast events rebase {name}</code>
        </p>
      )}
      <dl class="figures">
        <div>
          <dt>Events behind</dt>
          <dd title={count(line.lag_events)}>{compact(line.lag_events)}</dd>
        </div>
        <div>
          <dt>Time behind</dt>
          <dd>{duration(line.lag_seconds)}</dd>
        </div>
        <div>
          <dt>Parked</dt>
          <dd>
            <a href={to(["relays", name])} aria-label={`Parked events of ${name}: ${line.parked}`}>
              {compact(line.parked)}
            </a>
          </dd>
        </div>
      </dl>
      <details open={line.partitions.length > 1 && line.partitions.length <= 4}>
        <summary>{many(line.partitions.length, "partition")}</summary>
        <Table
          caption={`Partitions of ${name}`}
          columns={PARTITIONS}
          rows={line.partitions}
          id={(one) => String(one.partition)}
        />
      </details>
    </li>
  );
}

const PARTITIONS: Column<PartitionLine>[] = [
  { name: "Partition", head: true, cell: (one) => one.partition },
  {
    name: "Held by",
    cell: (one) => (one.worker ? `worker #${one.worker}` : <span class="text-warn">none</span>),
  },
  { name: "Events behind", end: true, cell: (one) => compact(one.lag_events) },
  { name: "Time behind", end: true, cell: (one) => duration(one.lag_seconds) },
  { name: "Moved", end: true, cell: (one) => <Time at={one.at} /> },
];

function State({ line }: { line: SubscriptionLine }) {
  if (line.elsewhere)
    return (
      <Badge tone="bad" icon="warning">
        of another server
      </Badge>
    );
  if (line.paused)
    return (
      <Badge tone="warn" icon="pause">
        paused
      </Badge>
    );
  if (line.lag_seconds > BEHIND_SECONDS)
    return (
      <Badge tone="warn" icon="warning">
        behind
      </Badge>
    );
  return (
    <Badge tone="ok" icon="completed">
      reading
    </Badge>
  );
}
