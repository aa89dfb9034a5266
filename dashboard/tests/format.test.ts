import { describe, expect, it } from "vitest";
import { learn, serverNow } from "../src/clock";
import { bytes, compact, count, many, share, tries } from "../src/number";
import { absolute, between, brief, coarse, duration, fromField, relative, toField } from "../src/time";

/** Numbers and units are held together by spaces that do not break. */
const plain = (text: string) => text.replaceAll("\u00a0", " ");

describe("the attempts of a job", () => {
  it("name the limit, or that there is none", () => {
    expect(tries(2, 3)).toBe("2 of 3");
    expect(tries(7, null)).toBe("7, no limit");
  });
});

describe("a length of time", () => {
  it.each([
    [0, "0 s"],
    [0.0042, "4.2 ms"],
    [0.05, "50 ms"],
    [0.35, "350 ms"],
    [0.9999, "1 s"],
    [1.24, "1.2 s"],
    [9.96, "10 s"],
    [59.4, "59 s"],
    [59.6, "1 min"],
    [200, "3 min 20 s"],
    [3600, "1 h"],
    [7500, "2 h 5 min"],
    [90_000, "1 d 1 h"],
    [86_400 * 12.4, "12 d"],
    [-5, "-5 s"],
    [null, "–"],
  ])("of %s seconds is told as %s", (seconds, said) => {
    expect(plain(duration(seconds))).toBe(said);
  });

  it.each([
    [2.44, "2.4 s"],
    [42.4, "42 s"],
    [1840, "31 min"],
    [86_400 * 3, "3 d"],
  ])("of %s seconds is told in one unit as %s", (seconds, said) => {
    expect(plain(coarse(seconds))).toBe(said);
  });
});

describe("a moment", () => {
  const now = Date.parse("2026-07-03T12:00:00Z");

  it.each([
    ["2026-07-03T12:00:00.400Z", "just now"],
    ["2026-07-03T11:59:48Z", "12 s ago"],
    ["2026-07-03T12:03:00Z", "in 3 min"],
    ["2026-07-03T02:00:00Z", "10 h ago"],
    ["2026-06-30T12:00:00Z", "3 d ago"],
    ["nonsense", "nonsense"],
  ])("at %s is told as %s", (at, said) => {
    expect(plain(relative(at, now))).toBe(said);
  });

  it("is told in full in the reader's own zone", () => {
    const local = new Date(2026, 6, 3, 4, 5, 6);
    expect(absolute(local.toISOString())).toBe("2026-07-03 04:05:06");
  });

  it("is told no longer than it must be", () => {
    const here = new Date(2026, 6, 3, 14, 0);
    const told = (...parts: [number, number, number, number, number]) =>
      plain(brief(new Date(...parts).toISOString(), here.getTime()));
    expect(told(2026, 6, 3, 9, 5)).toBe("09:05");
    expect(told(2026, 10, 16, 21, 59)).toBe("16 Nov 21:59");
    expect(told(2027, 0, 25, 1, 19)).toBe("2027-01-25");
  });

  it("goes into a field and comes back", () => {
    const at = new Date(2026, 6, 3, 14, 2).toISOString();
    expect(toField(at)).toBe("2026-07-03T14:02");
    expect(fromField(toField(at))).toBe(at);
    expect(fromField("")).toBeNull();
    expect(fromField("nonsense")).toBeNull();
    expect(toField(null)).toBe("");
  });

  it("lies so many seconds after another", () => {
    expect(between("2026-07-03T12:00:00Z", "2026-07-03T12:01:30.500Z")).toBe(90.5);
  });
});

describe("the server's clock", () => {
  it("is followed when this one is wrong, and not for the parts of a second that a header lacks", () => {
    learn(new Date(Date.now() + 3_600_000).toUTCString());
    expect(serverNow() - Date.now()).toBeGreaterThan(3_590_000);
    learn(new Date(Date.now() - 900).toUTCString());
    expect(Math.abs(serverNow() - Date.now())).toBeLessThan(50);
    learn(null);
    learn("nonsense");
    expect(Math.abs(serverNow() - Date.now())).toBeLessThan(50);
  });
});

describe("a number", () => {
  it.each([
    [0, "0"],
    [9999, "9,999"],
    [12_345, "12.3 k"],
    [134_400, "134 k"],
    [1_250_000, "1.25 M"],
    [7_000_000_000, "7 G"],
    [2.345, "2.35"],
  ])("%s is told shortly as %s", (value, said) => {
    expect(plain(compact(value))).toBe(said);
  });

  it("is told in full with its noun", () => {
    expect(count(1_234_567)).toBe("1,234,567");
    expect(many(1, "job")).toBe("1 job");
    expect(many(2000, "job")).toBe("2,000 jobs");
    expect(many(1, "kind has", "kinds have")).toBe("1 kind has");
  });

  it("is told as a part of a whole, never as nothing when there is something", () => {
    expect(plain(share(0, 0))).toBe("0 %");
    expect(plain(share(1, 100_000))).toBe("< 0.1 %");
    expect(plain(share(11, 1000))).toBe("1.1 %");
    expect(plain(share(1, 2))).toBe("50 %");
  });

  it("of bytes has a unit", () => {
    expect(plain(bytes(214))).toBe("214 bytes");
    expect(plain(bytes(1536))).toBe("1.5 KiB");
    expect(plain(bytes(3_145_728))).toBe("3 MiB");
    expect(plain(bytes(5 * 1024 ** 3))).toBe("5 GiB");
    expect(plain(bytes(3000 * 1024 ** 4))).toBe("3,000 TiB");
  });
});
