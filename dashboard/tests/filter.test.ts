import { describe, expect, it } from "vitest";
import { fromQuery, isEmpty, toQuery } from "../src/filter";
import type { JobFilter } from "../src/openapi";
import { parse, to } from "../src/route";

const FULL: JobFilter = {
  status: "failed",
  kind: "receipt.send",
  queue: "mail & co",
  text: "änna=1",
  order_key: "customer:4711",
  unique_key: "a/b?c#d",
  error_code: "smtp_refused",
  created_from: "2026-07-03T12:00:00.000Z",
  created_until: "2026-07-04T12:00:00.000Z",
};

describe("a filter in the address", () => {
  it("comes back as it was", () => {
    const address = to("jobs", toQuery(FULL));
    expect(fromQuery(parse(address).query)).toEqual(FULL);
  });

  it("is the same address whatever order it was made in", () => {
    const turned = Object.fromEntries(Object.entries(FULL).reverse());
    expect(toQuery(turned).toString()).toBe(toQuery(FULL).toString());
  });

  it("leaves out what is empty", () => {
    expect(toQuery({ status: null, kind: "" }).toString()).toBe("");
    expect(isEmpty({ status: null, kind: "" })).toBe(true);
    expect(isEmpty({ queue: "pdf" })).toBe(false);
  });

  it("leaves out what is not understood", () => {
    const query = new URLSearchParams("status=dead&created_from=yesterday&limit=9999&before=7&kind=a");
    expect(fromQuery(query)).toEqual({ kind: "a" });
  });

  it("keeps within what the server takes", () => {
    const query = new URLSearchParams({ text: `a\0${"b".repeat(300)}`, order_key: "c".repeat(900) });
    const filter = fromQuery(query);
    expect(filter.text).toHaveLength(200);
    expect(filter.text).not.toContain("\0");
    expect(filter.order_key).toHaveLength(500);
  });
});

describe("an address", () => {
  it("keeps names with any letters in one part", () => {
    expect(parse(to(["runners", "a/b ?#%ü"])).path).toEqual(["runners", "a/b ?#%ü"]);
  });

  it("of the overview has no parts", () => {
    expect(parse("").path).toEqual([]);
    expect(parse("#/").path).toEqual([]);
    expect(to("")).toBe("#/");
  });

  it("that is badly encoded is still read", () => {
    expect(parse("#/jobs/%E0%A4%A").path).toEqual(["jobs", "%E0%A4%A"]);
  });

  it("may have a question mark in its query", () => {
    expect(parse("#/jobs?text=a?b").query.get("text")).toBe("a?b");
  });
});
