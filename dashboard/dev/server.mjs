// Serves the built pages with made-up answers: `npm run build && npm run dev`, then open the address it prints.
// MOOD=well|trouble|empty|slow|broken|forbidden, ROLE=viewer|operator|developer, PORT.
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";
import * as archive from "./archive.mjs";
import * as fleet from "./fleet.mjs";
import * as work from "./work.mjs";

const MOOD = process.env.MOOD ?? "well";
const ROLE = process.env.ROLE ?? "operator";
const PAGES = new URL("../../src/holdfast/_ops/pages/", import.meta.url).pathname;
const TYPES = {
  ".html": "text/html",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
  ".txt": "text/plain",
};
const fixtures = { ...work, ...fleet, ...archive };
let signedIn = true;

const me = () => ({ name: "anna", role: ROLE, version: "0.1.0" });

function answer(method, path, query, body) {
  const [, first, name, last] = path.split("/").map(decodeURIComponent);
  if (method !== "GET")
    return {
      ...(first === "jobs" || body?.action === "drain" ? fixtures.act({ ids: null, action: "cancel", ...body }) : { done: true, message: `${name}: done.` }),
    };
  switch (first) {
    case "me":
      return me();
    case "overview":
      return fixtures.overview(MOOD);
    case "jobs":
      return name ? fixtures.job(name) : fixtures.jobs(query, MOOD);
    case "chains":
      return name ? fixtures.chain(name) : fixtures.chains(MOOD);
    case "dead-letters":
      return fixtures.deadLetters(MOOD);
    case "runners":
      return last ? fixtures.runs(name) : fixtures.runners(MOOD);
    case "subscriptions":
      return last ? fixtures.parked() : fixtures.subscriptions(MOOD);
    case "archive":
      if (name === "jobs")
        return { job: fixtures.job(last), files: [{ source: "job_history", starts_on: "2026-03-01", object: "c0ffee/job_history/day=2026-03-01/1.parquet" }], complete: true };
      return name ? fixtures.exports_(query) : fixtures.archive(MOOD);
    default:
      return fixtures[first]?.(MOOD);
  }
}

function json(response, status, value) {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify(value));
}

function session(method, body, response) {
  if (method === "POST" && !String(body?.token).startsWith("hf_")) {
    return json(response, 401, { error: "unauthorized", message: "This token is not accepted." });
  }
  signedIn = method === "POST";
  return json(response, 200, me());
}

function live(response) {
  response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
  const send = () => response.write(`data: ${JSON.stringify(fixtures.overview(MOOD))}\n\n`);
  send();
  const timer = setInterval(send, 2000);
  response.on("close", () => clearInterval(timer));
}

async function api(request, response, path, query) {
  const chunks = await request.toArray();
  const body = chunks.length > 0 ? JSON.parse(Buffer.concat(chunks).toString()) : undefined;
  if (path === "/session") return session(request.method, body, response);
  if (!signedIn) return json(response, 401, { error: "unauthorized", message: "Sign in." });
  if (path === "/live") return live(response);
  if (path !== "/me" && MOOD === "forbidden") return json(response, 403, { error: "forbidden", message: "This needs the role operator." });
  if (path !== "/me" && MOOD === "broken") return json(response, 503, { error: "too_slow", message: "The database did not answer within 2 s." });
  if (path !== "/me" && MOOD === "slow") await new Promise((done) => setTimeout(done, 60_000));
  if (path === "/jobs/7") return json(response, 404, { error: "archived", message: "Job 7 is no longer in the database. It may be in the archive." });
  if (query.get("text")) await new Promise((done) => setTimeout(done, 400));
  return json(response, 200, answer(request.method, path, query, body));
}

async function page(response, path) {
  try {
    const file = join(PAGES, normalize(path === "/" ? "/index.html" : path));
    const content = await readFile(file);
    response.writeHead(200, {
      "content-type": TYPES[extname(file)],
      "content-security-policy": "default-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'",
    });
    response.end(content);
  } catch {
    response.writeHead(404).end();
  }
}

const server = createServer((request, response) => {
  const url = new URL(request.url, "http://localhost");
  const path = url.pathname.replace(/^\/ops/, "");
  const done = path.startsWith("/api/") ? api(request, response, path.slice(4), url.searchParams) : page(response, path);
  done?.catch?.((error) => json(response, 500, { error: "failed", message: String(error) }));
});
server.listen(Number(process.env.PORT ?? 5199), "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/ops/`));
