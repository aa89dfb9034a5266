// @vitest-environment happy-dom
import { type ComponentChildren, render } from "preact";
import { afterEach, describe, expect, it, vi } from "vitest";
import { ApiError } from "../src/client";
import { now } from "../src/clock";
import type { Overview, Role } from "../src/openapi";
import { ActButton, Button } from "../src/parts/button";
import { Json } from "../src/parts/json";
import { LookedLine } from "../src/parts/looked";
import { Failure } from "../src/parts/state";
import { Verdict } from "../src/parts/verdict";
import type { Found } from "../src/search";
import { session } from "../src/session";

function shown(what: ComponentChildren): HTMLElement {
  render(what, document.body);
  return document.body;
}

const signIn = (role: Role) => {
  session.value = { state: "in", me: { name: "anna", role, version: "1", databases: [] } };
};

afterEach(() => {
  render(null, document.body);
  session.value = { state: "asking" };
});

describe("a button", () => {
  it("that acts is off for a viewer, says why, and does nothing", () => {
    signIn("viewer");
    const act = vi.fn();
    const button = shown(<ActButton onClick={act}>Pause</ActButton>).querySelector("button");
    expect(button?.getAttribute("aria-disabled")).toBe("true");
    expect(button?.title).toBe("Needs the role operator; yours is viewer.");
    button?.click();
    expect(act).not.toHaveBeenCalled();
  });

  it("that acts works for an operator", () => {
    signIn("operator");
    const act = vi.fn();
    shown(<ActButton onClick={act}>Pause</ActButton>)
      .querySelector("button")
      ?.click();
    expect(act).toHaveBeenCalledOnce();
  });

  it("that is busy is not pressed twice", () => {
    const act = vi.fn();
    const button = shown(
      <Button busy onClick={act}>
        Save
      </Button>,
    ).querySelector("button");
    button?.click();
    expect(act).not.toHaveBeenCalled();
    expect(button?.getAttribute("aria-busy")).toBe("true");
  });
});

describe("the verdict", () => {
  const overview = {
    at: new Date(now.value).toISOString(),
    ok: true,
    verdict: "All is well",
    problems: [],
    workers: 2,
    queues: [],
    counted_at: null,
  } as unknown as Overview;

  it("says that all is well", () => {
    expect(shown(<Verdict overview={overview} />).querySelector("h2")?.textContent).toBe("All is well");
  });

  it("says nothing of now when it is old", () => {
    const at = new Date(now.value - 300_000).toISOString();
    const body = shown(<Verdict overview={{ ...overview, at }} />);
    expect(body.querySelector("h2")?.textContent).toBe("Not known now");
    expect(body.textContent).toContain("All is well, 5\u00a0min ago");
  });

  it("says what is wrong, what to do and where", () => {
    const problem: Overview["problems"][number] = {
      code: "unserved_kind",
      severity: "critical",
      title: "No worker serves a/b",
      text: "3 jobs of a/b wait.",
      advice: "Start a worker.",
      about: "a/b",
      since: overview.at,
      count: 3,
      page: "jobs?kind=a%2Fb&status=pending",
      command: "holdfast worker",
    };
    const problems = [problem, { ...problem, page: "relays/x%2Fy", command: null }];
    const body = shown(<Verdict overview={{ ...overview, ok: false, verdict: "2 problems", problems }} />);
    expect(body.querySelector("h2")?.textContent).toBe("2 problems");
    expect(body.querySelector(".problems li")?.textContent).toContain("3 jobs of a/b wait.");
    expect(body.querySelector(".problems code")?.textContent).toBe("holdfast worker");
    const links = [...body.querySelectorAll(".problems a")];
    expect(links.map((link) => link.getAttribute("href"))).toEqual([
      "#/jobs?kind=a%2Fb&status=pending",
      "#/relays/x%2Fy",
    ]);
    expect(links.map((link) => link.textContent)).toEqual(["Jobs", "Parked events"]);
  });
});

describe("JSON", () => {
  it("marks what was left out, and shows markup as text", () => {
    const body = shown(<Json value={{ password: "[redacted]", name: "<img src=x>" }} what="Payload" />);
    expect(body.querySelector(".redacted")?.textContent).toBe("redacted");
    expect(body.querySelector("img")).toBeNull();
    expect(body.querySelector("pre")?.textContent).toContain('"<img src=x>"');
  });

  it("folds what is long", () => {
    const body = shown(<Json value={Array.from({ length: 500 }, (_, index) => index)} what="Payload" />);
    expect(body.querySelector("pre")?.textContent?.split("\n")).toHaveLength(60);
    expect(body.textContent).toContain("Show all 502 lines");
  });
});

describe("how far a search looked", () => {
  const found: Found<unknown> = {
    lines: [],
    looked: 10_000,
    backTo: null,
    complete: false,
    more: true,
    looking: true,
    stopped: false,
    error: null,
  };
  const line = (change: Partial<Found<unknown>>) => {
    const [look, stop] = [vi.fn(), vi.fn()];
    const body = shown(<LookedLine found={{ ...found, ...change }} nouns="jobs" look={look} stop={stop} />);
    return { body, look, stop, press: () => body.querySelector("button")?.click() };
  };

  it("is told while it looks, and it can be stopped", () => {
    const { body, stop, press } = line({});
    expect(body.textContent).toContain("Searched 10,000 jobs, nothing yet…");
    press();
    expect(stop).toHaveBeenCalledOnce();
  });

  it("is told when it has stopped, and it can go on", () => {
    const { body, look, press } = line({ looking: false, stopped: true });
    expect(body.textContent).toContain("Stopped. Searched 10,000 jobs.");
    press();
    expect(look).toHaveBeenCalledOnce();
  });

  it("is told at the end", () => {
    expect(line({ looking: false, complete: true, more: false }).body.textContent).toContain("That is all.");
  });
});

describe("a failure", () => {
  it("that is a matter of permission says who one is", () => {
    signIn("viewer");
    const body = shown(<Failure error={new ApiError(403, "forbidden", "Needs operator.")} retry={vi.fn()} />);
    expect(body.textContent).toContain("You may not see this");
    expect(body.textContent).toContain("anna, with the role viewer");
  });

  it("of another kind can be tried again", () => {
    const retry = vi.fn();
    const body = shown(<Failure error={new ApiError(503, "too_slow", "Too slow.")} retry={retry} />);
    expect(body.querySelector("[role=alert]")?.textContent).toContain("Too slow.");
    body.querySelector("button")?.click();
    expect(retry).toHaveBeenCalledOnce();
  });
});
