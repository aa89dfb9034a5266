import { readFileSync } from "node:fs";
import { defineConfig } from "vitest/config";

// What is bundled, and so must be shipped with its license.
const BUNDLED = ["preact", "@preact/signals", "@preact/signals-core", "uplot"];

function notices(): string {
  const texts = BUNDLED.map((name) => {
    const text = readFileSync(new URL(`node_modules/${name}/LICENSE`, import.meta.url), "utf8");
    return `${name}\n\n${text.trim()}\n`;
  });
  return `The dashboard contains these packages.\n\n${texts.join("\n---\n\n")}`;
}

export default defineConfig({
  // Every address is relative, so that it works under any path it is mounted at.
  base: "./",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../src/holdfast/_ops/pages",
    emptyOutDir: true,
    target: "es2022",
    // A data: address would be refused by the content security policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    // light-dark() is kept as it is written.
    cssTarget: ["chrome123", "firefox120", "safari17.5"],
  },
  plugins: [
    {
      name: "notices",
      generateBundle() {
        this.emitFile({ type: "asset", fileName: "notices.txt", source: notices() });
      },
    },
  ],
  test: { environment: "node", pool: "threads", isolate: false, include: ["tests/**/*.test.{ts,tsx}"] },
});
