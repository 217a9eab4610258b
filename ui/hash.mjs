// Prints the hash of the sources of the page, which the made files contain.

import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";

const names = ["index.html", "package-lock.json", "package.json", "tsconfig.json"];
for (const name of readdirSync("src")) names.push(`src/${name}`);
const hash = createHash("sha256");
for (const name of names.sort()) {
  const content = readFileSync(name);
  hash.update(`${name}\n${content.length}\n`).update(content);
}
console.log(hash.digest("hex").slice(0, 32));
