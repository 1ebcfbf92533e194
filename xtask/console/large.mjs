// The page of a server on the large scene: a thousand locks with ten thousand waiters, two hundred
// queues, and names that attack. How long each view takes is printed, not judged.

import { AUDIT, CONNECTED, open, sleep, VIEWS } from "./browser.mjs";

// Rows that nobody sees are not in the document, however many there are.
const MOST_ELEMENTS = 3000;
const COUNT = (view) => `Number(document.querySelector('#nav a[href^="#/${view}"] .count')?.textContent.replace(/,/g, "") ?? 0)`;

export default async function large(page, { link }) {
  await page.open(link);
  await page.expect("the page does not connect", CONNECTED, 60);
  const who = `document.getElementById("who").textContent`;
  await page.expect("a caller who shows nothing may change something", `${who}.includes("anybody at 127.0.0.1 · read only")`);
  // Somebody says who they are, by keyboard.
  await page.evaluate(`document.querySelector("#who button").focus()`);
  await page.key("Enter");
  await page.expect("the question who somebody is does not open", `document.getElementById("dialog").open && document.activeElement.tagName === "INPUT"`);
  for (const found of await page.evaluate(AUDIT)) page.problems.push(`identity: ${found}`);
  await page.picture("large-identity");
  await page.type("öps:geheim");
  await page.key("Enter");
  await page.expect("the page does not know who has said who they are", `document.getElementById("who")?.textContent.startsWith("digest:öps at")`, 20);
  await page.expect("there are not a thousand locks", `${COUNT("locks")} >= 1000`, 120);
  await page.expect("there are not two hundred queues", `${COUNT("queues")} >= 200`, 60);
  await page.expect("the deadlock of three is not found", `document.querySelector('#nav a[href^="#/graph"]').textContent.includes("1 deadlock")`, 60);
  const took = {};
  for (const theme of ["light", "dark"]) {
    await page.theme(theme);
    for (const [name, hash] of Object.entries({ ...VIEWS, tree: "#/tree?at=%2Fmany" })) {
      const ms = await open(page, name, hash);
      took[name] = Math.min(ms, took[name] ?? Infinity);
      await sleep(1000);
      for (const found of await page.evaluate(AUDIT)) page.problems.push(`large ${name}, ${theme}: ${found}`);
      const elements = await page.evaluate(`document.querySelectorAll("*").length`);
      if (elements > MOST_ELEMENTS) page.problems.push(`large ${name}: ${elements} elements`);
      if (theme === "light") await page.picture(`large-${name}`);
    }
  }
  await page.theme("light");
  console.log(`large: milliseconds to open ${Object.entries(took).map(([name, ms]) => `${name} ${ms}`).join(", ")}`);
  // The last row can be reached, and a search leaves one.
  await open(page, "locks", "#/locks");
  const grid = `document.querySelector("main [role=grid]")`;
  const first = await page.evaluate(`${grid}.textContent`);
  await page.evaluate(`${grid}.scrollTop = 1e9`);
  await page.expect("large: the last lock cannot be reached", `${grid}.scrollTop > 25000 && ${grid}.querySelectorAll("[role=gridcell]").length > 20 && ${grid}.textContent !== ${JSON.stringify(first)}`);
  await page.evaluate(`location.hash = "#/locks?q=many%2F0999"`);
  await page.expect("large: a search does not find one of a thousand locks", `document.getElementById("summary")?.textContent.startsWith("1 match")`);
  await hostile(page);
}

async function hostile(page) {
  const main = `document.querySelector("main").textContent`;
  await open(page, "tree", "#/tree?at=%2Fhostile%2Fbig");
  await page.expect("hostile: a megabyte of data is not cut", `${main}.length > 1000 && ${main}.length < 200000`);
  await open(page, "tree", "#/tree?at=%2Fhostile%2Fbytes");
  await page.expect("hostile: bytes that are no text are not shown as numbers", `${main}.includes("00 01 02 1b")`);
  await open(page, "tree", "#/tree?at=%2Fhostile");
  await page.expect("hostile: a letter that turns the direction of writing is shown as it is", `${main}.includes("\\\\u{202e}") && !${main}.includes("\\u202e")`);
  for (const found of await page.evaluate(AUDIT)) page.problems.push(`hostile: ${found}`);
  await page.picture("hostile-tree");
  await page.evaluate(`location.hash = "#/locks?q=hostile"`);
  await page.expect("hostile: the locks with such names are not shown", `/^[1-9][0-9]* match/.test(document.getElementById("summary")?.textContent)`);
  await sleep(500);
  for (const found of await page.evaluate(AUDIT)) page.problems.push(`hostile locks: ${found}`);
  if (await page.evaluate(`/[\\u0000-\\u0008\\u001b\\u202e]/.test(document.body.textContent)`)) page.problems.push("hostile: a control byte is in the page");
  await page.picture("hostile-locks");
}
