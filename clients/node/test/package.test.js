// The size of the client, its dependencies (none), and that its types name all that it has.

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { test } from "node:test";

import * as baton from "../lib/index.js";
import { ROOT } from "./support.js";

const read = (name) => fs.readFileSync(path.join(ROOT, name), "utf8");
const files = fs.readdirSync(path.join(ROOT, "lib")).filter((name) => name.endsWith(".js"));
const sources = files.map((name) => read(path.join("lib", name)));

test("it has at most 600 lines of code", () => {
  assert.equal(files.length, 5);
  const isCode = (line) => !/^\s*(\/\/|\/\*\*|\*|[\]})(;,]*$)/.test(line);
  const lines = sources.join("\n").split("\n").filter(isCode).length;
  assert.ok(lines > 300 && lines <= 600, String(lines));
});

test("it imports the standard library alone", () => {
  const imported = sources.flatMap((text) => [...text.matchAll(/ from "(.*?)";/g)].map(([, name]) => name));
  assert.ok(imported.length > 5);
  assert.deepEqual(imported.filter((name) => !/^(node:|\.\/)/.test(name)), []);
  assert.equal(JSON.parse(read("package.json")).dependencies, undefined);
});

test("its types name all that it exports, and no more", () => {
  const types = read("lib/index.d.ts");
  const named = [...types.matchAll(/^export (?:class|const) (\w+)|export { Lost as (\w+) }/gm)];
  const names = named.map(([, name, alias]) => name ?? alias).sort();
  assert.deepEqual(names, Object.keys(baton).sort());
  for (const type of [baton.Agent, baton.Guard, baton.Item, baton.Membership]) {
    const methods = Object.getOwnPropertyNames(type.prototype).filter((name) => !name.startsWith("_"));
    for (const name of methods.filter((name) => name !== "constructor")) {
      assert.match(types, new RegExp(`\\b${name}[(:<]`), `${type.name}.${name}`);
    }
  }
});

test("the README holds a lock in its first ten lines", () => {
  assert.match(read("README.md").split("\n").slice(0, 10).join("\n"), /await lock\(/);
});
