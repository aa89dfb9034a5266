import { to } from "./route";
import type { Problem } from "./types";

export interface Advice {
  what: string;
  /** A command to type, where one helps. */
  command?: string;
  link: string;
  page: string;
}

/** What to do about a problem, and where to look. */
export function advice({ code, about }: Problem): Advice {
  switch (code) {
    case "no_worker":
      return { what: "Start a worker.", command: "holdfast worker", link: to("workers"), page: "Workers" };
    case "no_reaper":
      return {
        what: "Nobody takes back expired leases. Start a worker, or one with the reaper runner.",
        link: to("runners"),
        page: "Runners",
      };
    case "unserved_kind":
      return {
        what: "Start a worker that has its handler, or look whether one failed to start.",
        link: to("workers"),
        page: "Workers",
      };
    case "backlog":
      return {
        what: "Start more workers, or raise the queue's concurrency.",
        link: to("queues"),
        page: "Queues",
      };
    case "failing":
      return {
        what: "Look at their errors, and redrive them when the cause is repaired.",
        link: to("dead-letters"),
        page: "Dead letters",
      };
    case "stuck":
      return {
        what: "Their leases have expired and they wait to be reaped. If it lasts, look at the workers.",
        link: to("jobs", { status: "processing" }),
        page: "Processing jobs",
      };
    case "relay_behind":
      return { what: "Look at its sink and its parked events.", link: to("relays"), page: "Relays" };
    case "relay_elsewhere":
      return {
        what: "This database was restored from another server. Begin anew:",
        command: `holdfast events rebase ${about ?? "--all"}`,
        link: to("relays"),
        page: "Relays",
      };
    case "relay_parked":
      return {
        what: "See why its sink refused them; release them once it is repaired.",
        link: about ? to(["relays", about]) : to("relays"),
        page: "Parked events",
      };
    case "runner_failing":
      return {
        what: "See the errors of its last runs.",
        link: about ? to(["runners", about]) : to("runners"),
        page: "Runs",
      };
    case "census_old":
      return {
        what: "The numbers of waiting jobs are old. A worker or `holdfast serve` counts; see whether one runs.",
        link: to("workers"),
        page: "Workers",
      };
  }
}
