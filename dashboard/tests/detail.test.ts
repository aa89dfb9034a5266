import { expect, it } from "vitest";
import { flat } from "../src/detail";

it("lays out what an action was told to do", () => {
  const detail = { filter: { kind: "a.b", queue: null }, preview: false, limit: 100, ids: ["1", "2"] };
  expect(flat(detail)).toEqual([
    ["kind", "a.b"],
    ["preview", "false"],
    ["limit", "100"],
    ["ids", "1, 2"],
  ]);
});

it("cuts long lists, and says how much it left out", () => {
  const ids = Array.from({ length: 1000 }, (_, index) => String(index));
  expect(flat({ ids })).toEqual([["ids", "0, 1, 2, 3, 4, 5, 6, 7 and 992 more"]]);
});
