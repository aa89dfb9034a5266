import { describe, expect, it } from "vitest";
import { scheduleText, timesOf } from "../src/schedule";

describe("the times of a schedule", () => {
  it.each(["every 120s", "every 0.25s", "0 9 * * 1 Asia/Tokyo", "17 3 * * 1-5 UTC"])(
    "are written as they were read: %s",
    (text) => expect(scheduleText(timesOf(text))).toBe(text),
  );

  it.each([
    ["every 60s", { seconds: "" }],
    ["every 60s", { seconds: "-1" }],
    ["every 60s", { by: "cron" as const }],
    ["0 9 * * 1 UTC", { zone: " " }],
    ["0 9 * * 1 UTC", { by: "interval" as const }],
  ])("are missing something: %s, %o", (text, change) =>
    expect(scheduleText({ ...timesOf(text), ...change })).toBeNull(),
  );
});
