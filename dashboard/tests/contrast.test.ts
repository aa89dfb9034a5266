import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";

const CSS = readFileSync(new URL("../src/styles/tokens.css", import.meta.url), "utf8");
const THEMES = ["light", "dark"] as const;
const GROUNDS = ["ground", "surface", "raised"];
const TONES = ["ok", "bad", "warn", "busy", "held", "idle"];

/** The colour of a custom property in a theme, as it stands in the style sheet. */
function colour(name: string, theme: (typeof THEMES)[number]): string {
  const found = new RegExp(`--${name}: light-dark\\((#[0-9a-f]{6}), (#[0-9a-f]{6})\\)`).exec(CSS);
  const value = found?.[theme === "light" ? 1 : 2];
  if (!value) throw new Error(`--${name} has no colour`);
  return value;
}

/** As WCAG defines it: from 1, no contrast, to 21. */
function contrast(one: string, other: string): number {
  const [low = 0, high = 0] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

function luminance(hex: string): number {
  const [red = 0, green = 0, blue = 0] = [1, 3, 5].map((at) => {
    const part = Number.parseInt(hex.slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

const TEXT: [string, string][] = [
  ...GROUNDS.flatMap((ground): [string, string][] => [
    ["text", ground],
    ["muted", ground],
    ["accent", ground],
    ["bad", ground],
    ["warn", ground],
    ["ok", ground],
    ["held", ground],
  ]),
  ...TONES.flatMap((tone): [string, string][] => [
    [tone, `${tone}-soft`],
    [tone, "surface"],
    ["text", `${tone}-soft`],
    ["accent", `${tone}-soft`],
  ]),
  ["accent", "accent-soft"],
  ["text", "accent-soft"],
  ["muted", "accent-soft"],
  ["muted", "bad-soft"],
  ["on-accent", "accent"],
  ["on-bad", "bad"],
];

/** What is no text but must be seen: the edges of fields, focus rings, lines of charts. */
const PARTS: [string, string][] = [
  ["edge", "surface"],
  ["edge", "ground"],
  ["accent", "surface"],
  ["accent", "ground"],
  ["bad", "surface"],
  ["warn", "surface"],
  ["held", "surface"],
];

describe.each(THEMES)("in the %s theme", (theme) => {
  it.each(TEXT)("text in %s is legible on %s", (ink, ground) => {
    expect(contrast(colour(ink, theme), colour(ground, theme))).toBeGreaterThanOrEqual(4.5);
  });

  it.each(PARTS)("a part in %s is seen on %s", (ink, ground) => {
    expect(contrast(colour(ink, theme), colour(ground, theme))).toBeGreaterThanOrEqual(3);
  });
});

describe("the measure itself", () => {
  it("is that of WCAG", () => {
    expect(contrast("#000000", "#ffffff")).toBeCloseTo(21, 5);
    expect(contrast("#777777", "#ffffff")).toBeCloseTo(4.48, 2);
  });

  it("covers every colour that text may have", () => {
    const named = [...CSS.matchAll(/--([a-z-]+): light-dark\(#/g)].map((match) => match[1]);
    const covered = new Set([...TEXT, ...PARTS].flat());
    expect(named.filter((name) => name && !covered.has(name))).toEqual(["line"]);
  });
});
