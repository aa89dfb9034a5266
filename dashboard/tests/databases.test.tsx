// @vitest-environment happy-dom
import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { api } from "../src/api";
import { DatabaseSwitch } from "../src/parts/database-switch";
import { parse, route, to } from "../src/route";
import { session } from "../src/session";

beforeEach(() => {
  session.value = {
    state: "in",
    me: { name: "anna", role: "viewer", version: "1", databases: ["eu", "us"] },
  };
});

afterEach(() => {
  render(null, document.body);
  session.value = { state: "asking" };
  route.value = parse("");
});

describe("an address", () => {
  it("may name one of several databases", () => {
    expect(parse("#/@eu/jobs/7?x=1")).toMatchObject({ database: "eu", path: ["jobs", "7"] });
    expect(parse("#/jobs/7")).toMatchObject({ database: null, path: ["jobs", "7"] });
    expect(parse("#/@eu")).toMatchObject({ database: "eu", path: [] });
  });

  it("of a link stays in the database of the page", () => {
    expect(to("jobs", { status: "failed" })).toBe("#/jobs?status=failed");
    route.value = parse("#/@eu/queues");
    expect(to("jobs", { status: "failed" })).toBe("#/@eu/jobs?status=failed");
    expect(to("", {}, "us")).toBe("#/@us");
    expect(to("", {}, null)).toBe("#/");
  });

  it("that is asked names the database of the page", () => {
    expect(new URL(api.watchOverview()).pathname).toBe("/api/v1/overview/live");
    route.value = parse("#/@eu/queues");
    expect(new URL(api.watchOverview()).pathname).toBe("/api/v1/databases/eu/overview/live");
  });
});

describe("the switch of databases", () => {
  const choose = (name: string) => {
    const select = document.querySelector("select");
    if (!select) throw new Error("there is no switch");
    void act(() => {
      select.value = name;
      select.dispatchEvent(new Event("change"));
    });
  };

  it("keeps the page, and leaves what only one database has", () => {
    route.value = parse("#/@eu/jobs/7");
    render(<DatabaseSwitch />, document.body);
    expect([...document.querySelectorAll("option")].map((option) => option.textContent)).toEqual([
      "All databases",
      "eu",
      "us",
    ]);
    choose("us");
    expect(location.hash).toBe("#/@us/jobs");
    choose("");
    expect(location.hash).toBe("#/");
  });

  it("is not there where there is one database", () => {
    session.value = { state: "in", me: { name: "anna", role: "viewer", version: "1", databases: [] } };
    render(<DatabaseSwitch />, document.body);
    expect(document.querySelector("select")).toBeNull();
  });
});
