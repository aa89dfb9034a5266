import { describe, expect, it } from "vitest";
import type { AttemptLine, JobStory, StepLine } from "../src/openapi";
import { incidentNote, told, traceId } from "../src/story";
import { job } from "./job";

const attempt = (number: number, outcome: AttemptLine["outcome"]): AttemptLine => ({
  attempt: number,
  outcome,
  ended_at: `2026-07-03T12:0${number}:00Z`,
  worker: "41",
  worker_name: null,
  error_code: null,
  error: null,
  started_at: null,
  seconds: null,
  traceback: null,
  due_at: null,
  waited: null,
  app_version: null,
  log: null,
});
const titles = (story: JobStory) => told(story).map((step) => step.title);

describe("the story of a job", () => {
  it("of one that waits ends with when it may start", () => {
    const steps = told(job({}));
    expect(steps.map((step) => step.title)).toEqual(["Enqueued", "Attempt 1 may start"]);
    expect(steps[1]).toMatchObject({ ahead: true, at: "2026-07-03T12:00:01Z" });
  });

  it("of one that completed at the first try says when that started and how long it ran", () => {
    const line = { ...attempt(1, "completed"), started_at: "2026-07-03T12:00:58Z", seconds: 2 };
    const steps = told(job({ status: "completed", attempt: 1, attempts: [line] }));
    expect(steps.map((step) => step.title)).toEqual(["Enqueued", "Attempt 1 completed"]);
    expect(steps[1]).toMatchObject({ started: "2026-07-03T12:00:58Z", seconds: 2 });
  });

  it("of one that was completed from outside says so, though it has no attempt", () => {
    expect(titles(job({ status: "completed", attempt: 1, finished_at: "2026-07-03T12:01:00Z" }))).toEqual([
      "Enqueued",
      "Attempt 1 completed",
    ]);
  });

  it("of one that completed later tells what went before, and the end once", () => {
    const attempts = [attempt(1, "retry"), attempt(2, "completed")];
    expect(
      titles(job({ status: "completed", attempt: 2, attempts, finished_at: "2026-07-03T12:02:00Z" })),
    ).toEqual(["Enqueued", "Attempt 1 failed, and was tried again", "Attempt 2 completed"]);
  });

  it("of one that gathers jobs names its chains only where it waits for them", () => {
    const blockers = [{ chain_id: "3", status: null }] as JobStory["blockers"];
    const steps: JobStory["steps"] = [
      { at: "2026-07-03T12:00:01Z", name: "labels", key: null, state: "gathers", due: null },
    ];
    expect(titles(job({ status: "blocked", blockers, steps })).slice(0, 2)).toEqual([
      "Enqueued",
      "Waits for the jobs of labels",
    ]);
  });

  it("of one whose handler records steps tells them between its attempts", () => {
    const step = (
      name: string,
      state: StepLine["state"],
      minute: number,
      key: string | null = null,
    ): StepLine => ({
      at: `2026-07-03T12:0${minute}:30Z`,
      name,
      key,
      state,
      due: null,
    });
    const attempts = [attempt(2, "reschedule")];
    const steps = [
      step("charge", "done", 1),
      step("cool off", "sleep", 1),
      step("approval", "waits", 3, "2"),
    ];
    expect(titles(job({ status: "pending", attempts, steps })).slice(0, 5)).toEqual([
      "Enqueued",
      "Step charge",
      "Sleep cool off",
      "Attempt 2 was suspended",
      "Waits for the message approval (2)",
    ]);
  });

  it("of a dead letter ends with its last attempt, and names what ran it again", () => {
    const attempts = [attempt(1, "retry"), attempt(2, "lost"), attempt(3, "failed")];
    const story = job({ status: "failed", attempt: 3, attempts, replays: ["9"] });
    expect(titles(story)).toEqual([
      "Enqueued",
      "Attempt 1 failed, and was tried again",
      "Attempt 2 was lost: its lease expired",
      "Attempt 3 failed for good",
      "Run again",
    ]);
    expect(told(story).at(-1)?.jobs).toEqual(["9"]);
  });

  it("of one that failed without an attempt says why", () => {
    const steps = told(job({ status: "failed", error_code: "expired", error: "Too late." }));
    expect(steps.at(-1)).toMatchObject({ title: "Became a dead letter", code: "expired", text: "Too late." });
  });

  it("of one that runs tells where, how far, and that it was asked to stop", () => {
    const steps = told(
      job({
        status: "processing",
        attempt: 2,
        attempts: [attempt(1, "retry")],
        worker: "41",
        progress: 0.64,
        progress_note: "page 16",
        cancel_requested_at: "2026-07-03T12:03:00Z",
      }),
    );
    expect(steps.map((step) => step.title).slice(-2)).toEqual(["Asked to stop", "Attempt 2 runs now"]);
    expect(steps.at(-1)).toMatchObject({ worker: "41", text: "64 % done: page 16" });
  });

  it("of one that is blocked names what it waits for", () => {
    const steps = told(job({ status: "blocked", blockers: [{ chain_id: "3", status: null }] }));
    expect(steps.at(-1)).toMatchObject({ title: "Waits for other chains", chains: ["3"] });
  });

  it("of a replay names what it runs again", () => {
    expect(told(job({ replay_of: "5" }))[0]?.jobs).toEqual(["5"]);
  });

  it("goes on with what follows it", () => {
    expect(told(job({ status: "completed", next_id: "8" })).at(-1)).toMatchObject({
      title: "Continued",
      jobs: ["8"],
    });
  });
});

describe("the trace", () => {
  it("is read from a traceparent, and from nothing else", () => {
    expect(traceId("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")).toBe(
      "4bf92f3577b34da6a3ce929d0e0e4736",
    );
    expect(traceId("nonsense")).toBeNull();
    expect(traceId(null)).toBeNull();
  });
});

describe("an incident note", () => {
  it("says what failed, each time, where, and what was logged last", () => {
    const first = { ...attempt(1, "retry"), worker_name: "web-2", app_version: "7.1", error_code: "OSError" };
    const last = {
      ...first,
      ...attempt(2, "failed"),
      traceback: "in send\nOSError: no",
      log: "INFO shop: 7",
    };
    const failed = job({
      status: "failed",
      error_code: "OSError",
      error: "no",
      attempts: [first, { ...last, worker: null }],
    });
    expect(incidentNote(failed, "https://ops.example/#/jobs/7").split("\n")).toEqual([
      "Job 7, a.b in default: failed",
      "",
      "https://ops.example/#/jobs/7",
      "",
      "OSError: no",
      "",
      "- attempt 1 retry, 2026-07-03T12:01:00Z, web-2, version 7.1, OSError",
      "- attempt 2 failed, 2026-07-03T12:02:00Z",
      "",
      "in send",
      "OSError: no",
      "",
      "Log:",
      "INFO shop: 7",
    ]);
  });
});
