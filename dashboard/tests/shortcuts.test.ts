// @vitest-environment happy-dom
import { describe, expect, it } from "vitest";
import { isTyping, PLACES, reader } from "../src/shortcuts";

describe("keys", () => {
  it("go to every page by g and its letter", () => {
    for (const place of PLACES) {
      const read = reader();
      expect(read("g", 0)).toBeNull();
      expect(read(place.key, 100)).toEqual({ go: place.path });
    }
    expect(new Set(PLACES.map((place) => place.key)).size).toBe(PLACES.length);
  });

  it("do not wait for ever for the second", () => {
    const read = reader();
    read("g", 0);
    expect(read("j", 5000)).toBeNull();
  });

  it("mean one thing once", () => {
    const read = reader();
    read("g", 0);
    expect(read("r", 100)).toEqual({ go: "runners" });
    expect(read("r", 200)).toBe("refresh");
  });

  it("open the help and the search", () => {
    expect(reader()("?", 0)).toBe("help");
    expect(reader()("/", 0)).toBe("search");
    expect(reader()("x", 0)).toBeNull();
  });

  it("are left alone while somebody types, or holds another", () => {
    const input = document.createElement("input");
    const typed = new KeyboardEvent("keydown", { key: "g" });
    Object.defineProperty(typed, "target", { value: input });
    expect(isTyping(typed)).toBe(true);
    expect(isTyping(new KeyboardEvent("keydown", { key: "r", ctrlKey: true }))).toBe(true);
    expect(isTyping(new KeyboardEvent("keydown", { key: "r" }))).toBe(false);
  });
});
