// Drives a headless Chromium over its DevTools protocol: opens every view of the console in light
// and dark, collects what the browser reports, checks names, labels, contrast and keyboard, and
// takes pictures. No package is needed.
//
//   node --experimental-websocket check.mjs LINK FOLDER [VIEW…]

import { spawn } from "node:child_process";
import { mkdtempSync, writeFileSync, mkdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const [link, out, ...only] = process.argv.slice(2);
const url = new URL(link);
const token = url.hash.replace("#token=", "");
mkdirSync(out, { recursive: true });
const profile = mkdtempSync(join(tmpdir(), "console-"));
const chromium = spawn(process.env.CHROMIUM ?? "chromium", ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-port=0", `--user-data-dir=${profile}`, "about:blank"], { stdio: ["ignore", "ignore", "pipe"] });
const endpoint = await new Promise((resolve) => { let all = ""; chromium.stderr.on("data", (d) => { all += d; const m = /ws:\/\/\S+/.exec(all); if (m) resolve(m[0]); }); });
const port = new URL(endpoint).port;
const pages = await (await fetch(`http://127.0.0.1:${port}/json`)).json();
const socket = new WebSocket(pages.find((p) => p.type === "page").webSocketDebuggerUrl);
await new Promise((r) => socket.addEventListener("open", r));
let id = 0; const waiting = new Map(); const problems = [];
socket.addEventListener("message", (event) => {
  const m = JSON.parse(event.data);
  if (m.id) { waiting.get(m.id)?.(m); waiting.delete(m.id); }
  if (m.method === "Runtime.exceptionThrown") problems.push(m.params.exceptionDetails.exception?.description ?? m.params.exceptionDetails.text);
  if (m.method === "Log.entryAdded" && m.params.entry.level === "error") problems.push(m.params.entry.text + " " + (m.params.entry.url ?? ""));
  if (m.method === "Runtime.consoleAPICalled" && m.params.type === "error") problems.push(JSON.stringify(m.params.args));
  if (m.method === "Page.javascriptDialogOpening") problems.push("a dialog opened: markup ran");
});
const send = (method, params = {}) => new Promise((resolve) => { id += 1; waiting.set(id, resolve); socket.send(JSON.stringify({ id, method, params })); });
const evaluate = async (expression) => { const r = await send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true }); if (r.result.exceptionDetails) throw new Error(r.result.exceptionDetails.exception?.description); return r.result.result.value; };
const until = async (expression) => { for (let tries = 0; tries < 50; tries += 1) { if (await evaluate(expression)) return true; await sleep(100); } return false; };
const sleep = (ms) => new Promise((r) => setTimeout(r, ms));
for (const d of ["Page", "Runtime", "Log"]) await send(`${d}.enable`);
await send("Emulation.setDeviceMetricsOverride", { width: 1280, height: 720, deviceScaleFactor: 1, mobile: false });
await send("Page.navigate", { url: `${url.origin}/#token=${token}` });
for (let tries = 0; tries < 100 && !(await evaluate(`document.getElementById('dot')?.className === 'dot on'`)); tries += 1) await sleep(200);
await sleep(1500);
const shot = async (name) => { const r = await send("Page.captureScreenshot", { format: "png" }); writeFileSync(join(out, `${name}.png`), Buffer.from(r.result.data, "base64")); };
const views = { locks: "#/locks?at=%2Fdeploy%2Fweb", elections: "#/elections?at=%2Fservices%2Fbilling%2Fleader", queues: "#/queues?at=%2Fjobs%2Fimages", groups: "#/groups?at=%2Flicences", sessions: "#/sessions", graph: "#/graph", ensemble: "#/ensemble", tree: "#/tree?at=%2Fdeploy%2Fweb" };
// Names, roles, contrast.
const audit = `(() => {
  const found = [];
  const lum = (c) => { const p = c.match(/[\\d.]+/g).map(Number); const f = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }; return [0.2126 * f(p[0]) + 0.7152 * f(p[1]) + 0.0722 * f(p[2]), p[3] ?? 1]; };
  const behind = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (lum(c)[1] > 0.99) return lum(c)[0]; } return 1; };
  for (const e of document.querySelectorAll("body *")) {
    if (!e.checkVisibility || !e.checkVisibility() || e.closest(".hidden,.skip")) continue;
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (own) { const isSvg = e instanceof SVGElement; const s = getComputedStyle(e); const a = lum(isSvg ? s.fill : s.color)[0], b = behind(e); const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); if (ratio < 4.5 && !e.disabled && !e.closest("[disabled]")) found.push("contrast " + ratio.toFixed(2) + ": " + e.tagName + "." + e.className + " " + e.textContent.slice(0, 40)); }
    if (/^(BUTTON|A)$/.test(e.tagName) && !e.textContent.trim() && !e.getAttribute("aria-label")) found.push("no name: " + e.outerHTML.slice(0, 80));
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(e.tagName) && !e.labels?.length && !e.getAttribute("aria-label")) found.push("no label: " + e.outerHTML.slice(0, 80));
    if (e.getAttribute("role") === "grid" && (!e.getAttribute("aria-label") || e.tabIndex < 0)) found.push("grid without a name or a place in the tab order");
    if (e.tagName === "svg" && !e.getAttribute("aria-label")) found.push("drawing without a name");
    if (e.scrollHeight > e.clientHeight + 2 && /auto|scroll/.test(getComputedStyle(e).overflowY) && e.tabIndex < 0 && !e.querySelector("a,button,[tabindex]")) found.push("cannot be scrolled by keyboard: " + e.className);
  }
  if (document.querySelector("main img, main script, .row img, .row script, aside img")) found.push("markup in a name became an element");
  if (document.documentElement.lang !== "en" || !document.title) found.push("no language or title");
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id); if (new Set(ids).size !== ids.length) found.push("an id twice");
  return found;
})()`;
for (const theme of ["light", "dark"]) {
  await send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: theme }] });
  for (const [name, hash] of Object.entries(views)) {
    if (only.length && !only.includes(name)) continue;
    await evaluate(`location.hash = ${JSON.stringify(hash)}`);
    await until(`document.querySelector('#nav a[aria-current]')?.getAttribute("href").startsWith("#/${name}")`);
    await sleep(1200);
    for (const found of await evaluate(audit)) problems.push(`${name}, ${theme}: ${found}`);
    await shot(theme === "light" ? name : `${name}-dark`);
  }
}
// By keyboard alone.
const key = async (k, code) => { for (const type of ["keyDown", "keyUp"]) await send("Input.dispatchKeyEvent", { type, key: k, code: code ?? k, text: k.length === 1 && type === "keyDown" ? k : undefined, windowsVirtualKeyCode: k === "Enter" ? 13 : k === "Escape" ? 27 : undefined }); await sleep(300); };
if (!only.length) {
  await evaluate(`location.hash = "#/locks"`); await sleep(500);
  await key("j"); await key("j"); await key("Enter");
  await sleep(500);
  if (!(await until(`!document.getElementById("detail").hidden`))) problems.push("keyboard: Enter does not open the details");
  await key("Escape");
  if (!(await until(`document.getElementById("detail").hidden`))) problems.push("keyboard: Escape does not close the details");
  await key("/");
  if (!(await until(`document.activeElement.id === "search"`))) problems.push("keyboard: / does not reach the search");
  await key("Escape");
  for (let nth = 1; nth <= 8; nth += 1) { await key(String(nth)); if (!(await until(`document.querySelectorAll("#nav a")[${nth - 1}].getAttribute("aria-current") === "page"`))) problems.push(`keyboard: ${nth} does not open its view`); }
}
console.log(problems.length ? problems.join("\n") : "no problem found");
socket.close(); chromium.kill();
process.exitCode = problems.length ? 1 : 0;
setTimeout(() => process.exit(), 300);
