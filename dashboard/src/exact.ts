/**
 * Whole numbers of a payload may be larger than what a number can hold here. They are read as words that nothing else
 * begins like, and written as they came.
 */

const MARK = "\u0000n:";
const STRING_OR_NUMBER = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const LONG = /^-?\d{16,}$/;
const MARKED = /"\\u0000n:(-?\d+)"/g;

export function parseExactly(text: string): unknown {
  return JSON.parse(
    text.replace(STRING_OR_NUMBER, (found) => (LONG.test(found) ? JSON.stringify(MARK + found) : found)),
  );
}

export function writeExactly(value: unknown): string {
  return (JSON.stringify(value, null, 2) ?? "null").replace(MARKED, "$1");
}
