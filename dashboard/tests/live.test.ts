import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { ApiError } from "../src/client";
import { LiveOverview, type Stream } from "../src/live";
import type { Overview } from "../src/openapi";

const overview = (at: string) => ({ at }) as Overview;

class FakeStream implements Stream {
  readyState = 1;
  onmessage: Stream["onmessage"] = null;
  onerror: Stream["onerror"] = null;
  closed = false;
  private trouble: (event: MessageEvent<string>) => void = () => undefined;

  addEventListener(_: "trouble", listener: (event: MessageEvent<string>) => void) {
    this.trouble = listener;
  }

  close() {
    this.closed = true;
  }

  tell(at: string) {
    this.onmessage?.(new MessageEvent("message", { data: JSON.stringify(overview(at)) }));
  }

  complain(data: string) {
    this.trouble(new MessageEvent("trouble", { data }));
  }

  fail(readyState: number) {
    this.readyState = readyState;
    this.onerror?.(new Event("error"));
  }
}

function made(...answers: (Overview | Error)[]) {
  const streams: FakeStream[] = [];
  let asked = 0;
  const live = new LiveOverview({
    load: () => {
      const answer = answers[Math.min(asked, answers.length - 1)] ?? overview("none");
      asked += 1;
      return answer instanceof Error ? Promise.reject(answer) : Promise.resolve(answer);
    },
    open: () => {
      const stream = new FakeStream();
      streams.push(stream);
      return stream;
    },
  });
  return { live, streams, asked: () => asked };
}

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

describe("the live overview", () => {
  it("shows what was asked for, and is live once the stream tells something", async () => {
    const { live, streams } = made(overview("1"));
    await live.start();
    expect(live.overview.value?.at).toBe("1");
    expect(live.beat.value).toBe("connecting");
    streams[0]?.tell("2");
    expect(live.beat.value).toBe("live");
    expect(live.overview.value?.at).toBe("2");
  });

  it("leaves it to the browser to open a stream again that merely ended", async () => {
    const { live, streams, asked } = made(overview("1"));
    await live.start();
    streams[0]?.tell("2");
    streams[0]?.fail(0);
    expect(live.beat.value).toBe("reconnecting");
    expect(streams[0]?.closed).toBe(false);
    streams[0]?.tell("3");
    expect(live.beat.value).toBe("live");
    expect(asked()).toBe(1);
  });

  it("begins anew when a stream is refused, and keeps what it shows meanwhile", async () => {
    const { live, streams, asked } = made(overview("1"));
    await live.start();
    streams[0]?.fail(2);
    expect(live.beat.value).toBe("reconnecting");
    expect(live.overview.value?.at).toBe("1");
    await vi.advanceTimersByTimeAsync(2000);
    expect(asked()).toBe(2);
    expect(streams).toHaveLength(2);
  });

  it("waits longer after each failure, and not longer than half a minute or so", async () => {
    const { live, asked } = made(new ApiError(503, "busy", "Busy."));
    await live.start();
    await vi.advanceTimersByTimeAsync(120_000);
    const early = asked();
    expect(early).toBeGreaterThan(5);
    expect(early).toBeLessThan(12);
    await vi.advanceTimersByTimeAsync(120_000);
    expect(asked() - early).toBeGreaterThanOrEqual(2);
    expect(live.error.value?.code).toBe("busy");
  });

  it("waits as long as the server asks for", async () => {
    const { live, asked } = made(new ApiError(429, "too_many", "Wait.", 60));
    await live.start();
    await vi.advanceTimersByTimeAsync(59_000);
    expect(asked()).toBe(1);
    await vi.advanceTimersByTimeAsync(2000);
    expect(asked()).toBe(2);
  });

  it("does not ask again where it may not", async () => {
    const { live, asked } = made(new ApiError(403, "forbidden", "No."));
    await live.start();
    await vi.advanceTimersByTimeAsync(300_000);
    expect(asked()).toBe(1);
  });

  it("begins anew when a stream is silent for too long", async () => {
    const { live, streams } = made(overview("1"));
    await live.start();
    await vi.advanceTimersByTimeAsync(32_000);
    expect(streams[0]?.closed).toBe(true);
    expect(streams).toHaveLength(2);
  });

  it("says what the server has trouble with, and goes on listening", async () => {
    const { live, streams } = made(overview("1"));
    await live.start();
    streams[0]?.tell("2");
    streams[0]?.complain('{"type": "urn:holdfast:problem:too_slow", "detail": "Too slow."}');
    expect(live.error.value).toMatchObject({ code: "too_slow", message: "Too slow." });
    expect(live.overview.value?.at).toBe("2");
    streams[0]?.tell("3");
    expect(live.error.value).toBeNull();
  });

  it("keeps nothing open while it is paused", async () => {
    const { live, streams, asked } = made(overview("1"));
    await live.start();
    live.pause();
    await vi.advanceTimersByTimeAsync(300_000);
    expect(live.beat.value).toBe("paused");
    expect(streams.every((stream) => stream.closed)).toBe(true);
    expect(asked()).toBe(1);
    await live.start();
    expect(streams).toHaveLength(2);
  });

  it("passes over what it cannot read", async () => {
    const { live, streams } = made(overview("1"));
    await live.start();
    streams[0]?.onmessage?.(new MessageEvent("message", { data: "{" }));
    expect(live.overview.value?.at).toBe("1");
  });
});
