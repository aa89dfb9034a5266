// @vitest-environment happy-dom
import { describe, expect, it } from "vitest";
import { ApiError } from "../src/client";
import { pause } from "../src/resource";
import { refusal } from "../src/session";

describe("who may act", () => {
  it("is told with the reason", () => {
    expect(refusal("viewer")).toBe("Needs the role operator; yours is viewer.");
    expect(refusal(undefined)).toContain("unknown");
    expect(refusal("operator")).toBeNull();
    expect(refusal("developer")).toBeNull();
    expect(refusal("operator", "developer")).toContain("developer");
  });
});

describe("asking again", () => {
  it("happens at its pace", () => {
    expect(pause(5000, null)).toBe(5000);
    expect(pause(null, null)).toBeNull();
  });

  it("waits as long as the server asks for", () => {
    expect(pause(1000, new ApiError(429, "too_many", "", 30))).toBe(30_000);
    expect(pause(10_000, new ApiError(503, "busy", "", 1))).toBe(10_000);
  });

  it("does not happen where it cannot help", () => {
    for (const status of [401, 403, 404]) expect(pause(1000, new ApiError(status, "x", ""))).toBeNull();
  });
});
