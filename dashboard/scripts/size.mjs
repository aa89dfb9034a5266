// What a browser loads must stay small: counted as it is sent, compressed.
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const MOST_BYTES = 120 * 1024;
const LOADED = /\.(html|js|css|svg)$/;
const folder = new URL("../../src/holdfast/_ops/pages/", import.meta.url).pathname;

let total = 0;
for (const name of readdirSync(folder, { recursive: true })) {
  const file = join(folder, String(name));
  if (!LOADED.test(file) || !statSync(file).isFile()) continue;
  const size = gzipSync(readFileSync(file), { level: 9 }).length;
  total += size;
  console.log(`${String(size).padStart(8)}  ${name}`);
}
console.log(`${String(total).padStart(8)}  of at most ${MOST_BYTES} bytes, compressed`);
if (total > MOST_BYTES) {
  console.error("The dashboard has grown too large.");
  process.exit(1);
}
