import { describe, expect, it, vi } from "vitest";
import { ApiError, Client, isAbort } from "../src/client";
import { operations } from "../src/openapi";

type Answer = Response | Error | "hang";

function made(answer: Answer, timeoutMs = 1000) {
  const asked: { address: string; init: RequestInit }[] = [];
  const onUnauthorized = vi.fn();
  const onDate = vi.fn();
  const client = new Client({
    base: "https://site.example/admin/ops/?x=1#/jobs",
    fetch: (address, init = {}) => {
      asked.push({ address: String(address), init });
      if (answer === "hang") {
        return new Promise((_, reject) =>
          init.signal?.addEventListener("abort", () => reject(new DOMException("aborted", "AbortError"))),
        );
      }
      return answer instanceof Error ? Promise.reject(answer) : Promise.resolve(answer);
    },
    onUnauthorized,
    onDate,
    timeoutMs,
  });
  return { client, asked, onUnauthorized, onDate };
}

const json = (status: number, value: unknown, headers: Record<string, string> = {}) =>
  new Response(JSON.stringify(value), { status, headers });

async function refused(promise: Promise<unknown>): Promise<ApiError> {
  const error = await promise.catch((raised: unknown) => raised);
  expect(error).toBeInstanceOf(ApiError);
  return error as ApiError;
}

describe("the client", () => {
  it("asks below the path that it is mounted at, and leaves out what is not given", async () => {
    const { client, asked } = made(json(200, { jobs: [] }));
    await client.get("api/v1/jobs", { status: "failed", kind: null, queue: undefined, text: "", limit: 50 });
    expect(asked[0]?.address).toBe("https://site.example/admin/ops/api/v1/jobs?status=failed&limit=50");
  });

  it("encodes each part of a path", async () => {
    const { client, asked } = made(json(200, {}));
    await operations(client, (path) => path).setQueue("a/b c?d#e", {
      concurrency: 1,
      lease_ms: null,
      rate: null,
    });
    expect(asked[0]?.address).toBe("https://site.example/admin/ops/queues/a%2Fb%20c%3Fd%23e");
  });

  it("sends the header against forgery with what changes something, and with nothing else", async () => {
    for (const [ask, sent] of [
      [(client: Client) => client.get("api/v1/me"), false],
      [(client: Client) => client.post("api/v1/session", {}), true],
      [(client: Client) => client.put("api/v1/queues/a", {}), true],
      [(client: Client) => client.delete("api/v1/session"), true],
    ] as const) {
      const { client, asked } = made(json(200, {}));
      await ask(client);
      const headers = new Headers(asked[0]?.init.headers);
      expect(headers.has("x-holdfast-csrf")).toBe(sent);
      expect(asked[0]?.init.credentials).toBe("same-origin");
    }
  });

  it("sends a body as JSON", async () => {
    const { client, asked } = made(json(200, {}));
    await client.post("api/v1/jobs/actions", { action: "retry", ids: ["7"] });
    expect(asked[0]?.init.body).toBe('{"action":"retry","ids":["7"]}');
    expect(new Headers(asked[0]?.init.headers).get("content-type")).toBe("application/json");
  });

  it("tells when the server does not know who asks, and still refuses", async () => {
    const { client, onUnauthorized } = made(
      json(401, { type: "urn:holdfast:problem:unauthorized", detail: "Sign in." }),
    );
    const error = await refused(client.get("api/v1/me"));
    expect(error).toMatchObject({ status: 401, code: "unauthorized", message: "Sign in." });
    expect(onUnauthorized).toHaveBeenCalledOnce();
  });

  it("does not sign anybody out for a refusal of another kind", async () => {
    const { client, onUnauthorized } = made(
      json(403, { type: "urn:holdfast:problem:forbidden", detail: "Needs operator." }),
    );
    expect((await refused(client.post("api/v1/jobs/actions", {}))).status).toBe(403);
    expect(onUnauthorized).not.toHaveBeenCalled();
  });

  it("keeps how long the server asks to wait", async () => {
    const { client } = made(
      json(429, { type: "urn:holdfast:problem:too_many", detail: "Wait." }, { "retry-after": "17" }),
    );
    expect((await refused(client.get("api/v1/me"))).retryAfter).toBe(17);
  });

  it("ignores a wait that is no number of seconds", async () => {
    const { client } = made(
      json(503, { type: "urn:holdfast:problem:x", detail: "y" }, { "retry-after": "Wed, 21 Oct 2026" }),
    );
    expect((await refused(client.get("api/v1/me"))).retryAfter).toBeNull();
  });

  it("says so when a proxy answers instead of the server", async () => {
    const { client } = made(new Response("<h1>Bad gateway</h1>", { status: 502 }));
    expect(await refused(client.get("api/v1/me"))).toMatchObject({ code: "http_502", status: 502 });
  });

  it("says so when an answer is not JSON", async () => {
    const { client } = made(new Response("<html>", { status: 200 }));
    expect((await refused(client.get("api/v1/me"))).code).toBe("not_json");
  });

  it("says so when nobody can be reached", async () => {
    const { client } = made(new TypeError("failed to fetch"));
    expect((await refused(client.get("api/v1/me"))).code).toBe("unreachable");
  });

  it("does not wait for ever", async () => {
    const { client } = made("hang", 5);
    expect((await refused(client.get("api/v1/me"))).code).toBe("timeout");
  });

  it("passes on that nobody waits any more", async () => {
    const { client } = made("hang");
    const aborter = new AbortController();
    const asked = client.get("api/v1/me", {}, aborter.signal).catch((error: unknown) => error);
    aborter.abort();
    expect(isAbort(await asked)).toBe(true);
  });

  it("takes an answer without a body", async () => {
    const { client } = made(new Response(null, { status: 204 }));
    expect(await client.delete("api/v1/session")).toBeUndefined();
  });

  it("tells the server's time", async () => {
    const { client, onDate } = made(json(200, {}, { date: "Sat, 14 Nov 2026 10:00:00 GMT" }));
    await client.get("api/v1/me");
    expect(onDate).toHaveBeenCalledWith("Sat, 14 Nov 2026 10:00:00 GMT");
  });
});
