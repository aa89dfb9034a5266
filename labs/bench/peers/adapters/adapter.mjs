// What every adapter for node does the same way: see adapter.py.
import { createRequire } from "node:module";
import readline from "node:readline";
import { pathToFileURL } from "node:url";

const CHUNK = 1000;
const REPORT_MILLISECONDS = 20;
const DATA = "x".repeat(90);
const late = [];
let count = 0;
let told = 0;
let first = 0;

const now = () => Number(process.hrtime.bigint()) / 1e9; // CLOCK_MONOTONIC
const say = (what) => process.stdout.write(JSON.stringify(what) + "\n");
const payload = (at = 0) => ({ at, data: DATA });
const sleep = (seconds) => new Promise((resolve) => setTimeout(resolve, 1000 * seconds));

/** Import a package from the peer's own folder, which is the working directory. */
export const load = (name) =>
  import(pathToFileURL(createRequire(process.cwd() + "/adapter.js").resolve(name)).href);

/** Take note that a handler runs: its first line. */
export function started(at) {
  if (count === 0) first = now();
  count += 1;
  if (at) late.push(Math.round(1e6 * (now() - at)) / 1e3);
}

function report() {
  if (count === told) return;
  say({ started: count, at: now(), first, late: late.splice(0) });
  told = count;
}

export async function main({ prepare, produce, work }) {
  const [verb, url, ...rest] = process.argv.slice(2);
  const [a, b] = rest.map(Number);
  const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  if (verb === "work") {
    say({ ready: true });
    await lines.next();
    lines.next().then(() => process.exit(0)); // with the harness
    setInterval(report, REPORT_MILLISECONDS);
    await work(url);
    return;
  }
  if (verb === "prepare") {
    await prepare(url);
    say({ prepared: true });
    process.exit(0);
  }
  const { one, many } = await produce(url);
  let begun = now();
  if (verb === "one") {
    await one(payload());
    begun = now();
    for (let number = 1; number < a; number += 1) await one(payload());
    say({ jobs: a - 1, seconds: now() - begun });
  } else if (verb === "many") {
    for (let done = 0; done < a; done += CHUNK) {
      await many(Array.from({ length: Math.min(CHUNK, a - done) }, () => payload()));
    }
    say({ jobs: a, seconds: now() - begun });
  } else if (verb === "pace") {
    say({ ready: true });
    while (!(await lines.next()).done) {
      await one(payload(now()));
      say({ sent: true });
    }
  } else {
    for (let number = 0; number < a * b; number += 1) {
      const at = begun + number / a;
      const early = at - now();
      if (early > 0) await sleep(early);
      await one(payload(at));
    }
    say({ jobs: a * b, seconds: now() - begun });
  }
  process.exit(0);
}
