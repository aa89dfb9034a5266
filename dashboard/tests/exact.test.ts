import { describe, expect, it } from "vitest";
import { parseExactly, writeExactly } from "../src/exact";

describe("whole numbers of any size", () => {
  it("are written as they came", () => {
    const text = '{"order":9223372036854775807,"user":-9007199254740993,"small":7,"part":1234567890123456.5}';
    const written = writeExactly(parseExactly(text));
    expect(written.replace(/\s/g, "")).toBe(text);
  });

  it("are left alone in texts and names", () => {
    const text =
      '{"9223372036854775807":"9223372036854775807 \\" 9223372036854775807","e":12345678901234567e3}';
    expect(parseExactly(text)).toEqual(JSON.parse(text));
  });

  it("stay numbers where they are small, or not whole", () => {
    const text = '{"jobs":123456789012345,"seconds":0.12345678901234567,"most":[-1.2345678901234567e-21,0]}';
    expect(parseExactly(text)).toEqual(JSON.parse(text));
  });
});
