import { compact, count, share } from "../number";
import type { Overview } from "../openapi";
import { to } from "../route";
import type { Sample } from "../series";
import { coarse, duration } from "../time";
import { Sparkline } from "./sparkline";

interface Tile {
  name: string;
  value: string;
  exact?: string;
  below: string;
  link: string;
  tone?: "bad" | "warn" | undefined;
  trail?: number[];
}

/** The six numbers that matter most. */
export function Tiles({ overview, trail }: { overview: Overview | null; trail: Sample[] }) {
  return (
    <ul class="tiles">
      {tiles(overview, trail).map((tile) => (
        <li key={tile.name} class={tile.tone && `tone-${tile.tone}`}>
          <a href={tile.link}>
            <span class="tile-name">{tile.name}</span>
            <b title={tile.exact}>{overview ? tile.value : "–"}</b>
            <span class="tile-below">{overview ? tile.below : " "}</span>
            {tile.trail && tile.trail.length > 1 && (
              <Sparkline values={tile.trail} label={`${tile.name}, since this page was opened`} />
            )}
          </a>
        </li>
      ))}
    </ul>
  );
}

function tiles(overview: Overview | null, trail: Sample[]): Tile[] {
  const { completed = 0, failed = 0, retried = 0, workers = 0, relay_lag_events: lag = 0 } = overview ?? {};
  const { due = 0, pending = 0, processing = 0, oldest_due_seconds: oldest = 0 } = overview?.depth ?? {};
  const fails = overview?.problems.some((problem) => problem.code === "kind_failing");
  const { p50 = null, p95 = null } = overview?.waiting ?? {};
  return [
    {
      name: "Completed",
      value: compact(completed),
      exact: count(completed),
      below: `last hour; ${compact(retried)} retried`,
      link: to("jobs", { status: "completed" }),
    },
    {
      name: "Failed",
      value: compact(failed),
      exact: count(failed),
      below: `${share(failed, failed + completed)} of all ended`,
      link: to("dead-letters"),
      tone: fails ? "bad" : undefined,
    },
    {
      name: "Due now",
      value: compact(due),
      exact: count(due),
      below: `of ${compact(pending)}; ${compact(processing)} run`,
      link: to("jobs", { status: "pending" }),
      trail: trail.map((sample) => sample.due),
    },
    {
      name: "Oldest waiting job",
      value: due > 0 ? coarse(oldest) : "–",
      exact: duration(oldest),
      below: due > 0 ? "since it was due" : "nothing is due",
      link: to("queues"),
      trail: trail.map((sample) => sample.oldest),
    },
    {
      name: "Waiting p95",
      value: duration(p95),
      below: `p50 ${duration(p50)}; runs ${duration(overview?.running.p95 ?? null)}`,
      link: to("queues"),
    },
    {
      name: "Workers",
      value: count(workers),
      below: lag > 0 ? `live; relays ${compact(lag)} behind` : "live; relays caught up",
      link: to("workers"),
      tone: overview && workers === 0 ? "bad" : undefined,
    },
  ];
}
