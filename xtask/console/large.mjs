// The page of a server on the large scene: a thousand locks with ten thousand waiters, two hundred
// queues, and names that attack. How long each view takes is printed, not judged.

import { CONNECTED, look, open, sleep, VIEWS } from "./browser.mjs";

// Rows that nobody sees are not in the document, however many there are.
const MOST_ELEMENTS = 3000;
const COUNT = (view) => `Number(document.querySelector('#nav a[href^="#/${view}"] .count')?.textContent.replace(/,/g, "") ?? 0)`;

// Bounds of the speed of the page, in milliseconds.
const FIRST_PAINT = 1000;
const UPDATE = 50;

export default async function large(page, { link }) {
  await page.open(link);
  await page.expect("the page does not connect", CONNECTED, 60);
  const who = `document.getElementById("who").textContent`;
  await page.expect("a caller who shows nothing may change something", `${who}.includes("anybody at 127.0.0.1 · read only")`);
  // Somebody says who they are, by keyboard.
  await page.evaluate(`document.querySelector("#who button").focus()`);
  await page.key("Enter");
  await page.expect("the question who somebody is does not open", `document.getElementById("dialog").open && document.activeElement.tagName === "INPUT"`);
  await page.audit("identity");
  await page.picture("large-identity");
  await page.type("öps:geheim");
  await page.key("Enter");
  await page.expect("the page does not know who has said who they are", `document.getElementById("who")?.textContent.startsWith("digest:öps at")`, 20);
  await page.expect("there are not a thousand locks", `${COUNT("locks")} >= 1000`, 120);
  await page.expect("there are not two hundred queues", `${COUNT("queues")} >= 200`, 60);
  await page.expect("the deadlock of three is not found", `document.querySelector('#nav a[href^="#/graph"]').textContent.includes("1 deadlock")`, 60);
  await speed(page, link);
  const all = { ...VIEWS, tree: "#/tree?at=%2Fmany" };
  for (const [name, hash] of Object.entries(all)) {
    await open(page, name, hash);
    await sleep(1000);
    const elements = await page.evaluate(`document.querySelectorAll("*").length`);
    if (elements > MOST_ELEMENTS) page.problems.push(`large ${name}: ${elements} elements`);
  }
  await look(page, all, "large-");
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

// The time to the first paint of a page that is opened, and that of the script for one update
// while a lock is taken and released.
async function speed(page, link) {
  const opened = Date.now();
  await page.open("about:blank");
  await page.open(link);
  await page.expect("speed: the locks do not come", `${COUNT("locks")} >= 1000`, 60);
  const first = await page.evaluate(`performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? Infinity`);
  const rows = await page.evaluate(`performance.now()`);
  const script = async () => {
    const { result } = await page.send("Performance.getMetrics");
    return 1000 * result.metrics.find(({ name }) => name === "ScriptDuration").value;
  };
  // The time that the script runs, not what other processes take of it.
  await page.send("Performance.enable", { timeDomain: "threadTicks" });
  await sleep(5000);
  const atRest = await script();
  const rested = Date.now();
  await sleep(5000);
  const perMs = ((await script()) - atRest) / (Date.now() - rested);
  await page.evaluate(`(window.changes = 0, new MutationObserver(() => { window.changes += 1; }).observe(document.getElementById("nav"), { childList: true }))`);
  const [before, began] = [await script(), Date.now()];
  for (let turn = 1; turn <= 4; turn += 1) {
    const lock = new AbortController();
    const held = await fetch(new URL("/v1/lock/many/turns", link), { method: "POST", body: "{}", signal: lock.signal, headers: { Authorization: "digest ops:geheim" } });
    if (!held.ok) page.problems.push(`speed: the lock is refused: ${held.status} ${await held.text()}`);
    await page.expect("speed: a lock that is taken is not shown", `window.changes >= ${2 * turn - 1}`, 30);
    lock.abort();
    await page.expect("speed: a lock that is released is not shown", `window.changes >= ${2 * turn}`, 30);
  }
  const changes = await page.evaluate(`window.changes`);
  const update = Math.max(0, (await script()) - before - perMs * (Date.now() - began)) / changes;
  console.log(`large: first paint after ${first.toFixed(0)} ms, 1,000 locks after ${rows.toFixed(0)} ms (${Date.now() - opened} ms with the browser), ${changes} updates of ${update.toFixed(1)} ms of script`);
  if (first > FIRST_PAINT) page.problems.push(`speed: the first paint takes ${first} ms`);
  if (update > UPDATE) page.problems.push(`speed: ${changes} updates of ${update} ms`);
}

async function hostile(page) {
  const main = `document.querySelector("main").textContent`;
  await open(page, "tree", "#/tree?at=%2Fhostile%2Fbig");
  await page.expect("hostile: a megabyte of data is not cut", `${main}.length > 1000 && ${main}.length < 200000`);
  await open(page, "tree", "#/tree?at=%2Fhostile%2Fbytes");
  await page.expect("hostile: bytes that are no text are not shown as numbers", `${main}.includes("00 01 02 1b")`);
  await open(page, "tree", "#/tree?at=%2Fhostile");
  await page.expect("hostile: a letter that turns the direction of writing is shown as it is", `${main}.includes("\\\\u{202e}") && !${main}.includes("\\u202e")`);
  await page.audit("hostile");
  await page.picture("hostile-tree");
  await page.evaluate(`location.hash = "#/locks?q=hostile"`);
  await page.expect("hostile: the locks with such names are not shown", `/^[1-9][0-9]* match/.test(document.getElementById("summary")?.textContent)`);
  await sleep(500);
  await page.audit("hostile locks");
  if (await page.evaluate(`/[\\u0000-\\u0008\\u001b\\u202e]/.test(document.body.textContent)`)) page.problems.push("hostile: a control byte is in the page");
  await page.picture("hostile-locks");
}
