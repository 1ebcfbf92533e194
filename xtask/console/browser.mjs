// A headless Chromium over its DevTools protocol: opens pages, presses keys, takes pictures, and
// collects what the browser reports. No package is needed.

import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const CODES = { Enter: 13, Escape: 27, Tab: 9 };

// Opens a browser that keeps pictures in `folder`. With `isTorn`, requests that fail are expected.
export async function browser(folder, { isTorn = false } = {}) {
  mkdirSync(folder, { recursive: true });
  const profile = mkdtempSync(join(tmpdir(), "console-"));
  const chromium = spawn(process.env.CHROMIUM ?? "chromium", ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-port=0", `--user-data-dir=${profile}`, "about:blank"], { stdio: ["ignore", "ignore", "pipe"] });
  const endpoint = await new Promise((resolve, reject) => {
    let all = "";
    chromium.on("error", reject);
    chromium.on("exit", () => reject(new Error(`the browser ended: ${all}`)));
    chromium.stderr.on("data", (data) => {
      all += data;
      const found = /ws:\/\/\S+/.exec(all);
      if (found) resolve(found[0]);
    });
  });
  const pages = await (await fetch(`http://127.0.0.1:${new URL(endpoint).port}/json`)).json();
  const socket = new WebSocket(pages.find((page) => page.type === "page").webSocketDebuggerUrl);
  await new Promise((resolve) => socket.addEventListener("open", resolve));
  const problems = [];
  const waiting = new Map();
  let id = 0;
  socket.addEventListener("message", (event) => {
    const { id: answered, method, params, ...rest } = JSON.parse(event.data);
    if (answered) {
      waiting.get(answered)?.(rest);
      waiting.delete(answered);
    }
    if (method === "Runtime.exceptionThrown") problems.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
    if (method === "Runtime.consoleAPICalled" && params.type === "error") problems.push(JSON.stringify(params.args));
    if (method === "Page.javascriptDialogOpening") problems.push("a dialog opened: markup ran");
    const entry = method === "Log.entryAdded" && params.entry;
    if (entry?.level === "error" && !(isTorn && entry.source === "network")) problems.push(`${entry.text} ${entry.url ?? ""}`);
  });
  const send = (method, params = {}) => new Promise((resolve) => {
    id += 1;
    waiting.set(id, resolve);
    socket.send(JSON.stringify({ id, method, params }));
  });
  for (const domain of ["Page", "Runtime", "Log"]) await send(`${domain}.enable`);
  await send("Emulation.setDeviceMetricsOverride", { width: 1280, height: 720, deviceScaleFactor: 1, mobile: false });
  const evaluate = async (expression) => {
    const { result } = await send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    if (result.exceptionDetails) throw new Error(`${result.exceptionDetails.exception?.description}: ${expression}`);
    return result.result.value;
  };
  // Whether the expression becomes true in time.
  const until = async (expression, seconds = 10) => {
    for (let tries = 0; tries < seconds * 10; tries += 1) {
      if (await evaluate(expression)) return true;
      await sleep(100);
    }
    return false;
  };
  return {
    problems,
    send,
    evaluate,
    until,
    // As `until`; what is missing is a problem.
    expect: async (what, expression, seconds) => {
      const is = await until(expression, seconds);
      if (!is) problems.push(what);
      return is;
    },
    open: (url) => send("Page.navigate", { url }),
    theme: (name) => send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: name }] }),
    key: async (key) => {
      for (const type of ["keyDown", "keyUp"]) {
        const text = key.length === 1 && type === "keyDown" ? key : key === "Enter" && type === "keyDown" ? "\r" : undefined;
        await send("Input.dispatchKeyEvent", { type, key, code: key, text, windowsVirtualKeyCode: CODES[key] });
      }
      await sleep(200);
    },
    type: (text) => send("Input.insertText", { text }),
    picture: async (name) => {
      const { result } = await send("Page.captureScreenshot", { format: "png" });
      writeFileSync(join(folder, `${name}.png`), Buffer.from(result.data, "base64"));
    },
    close: () => {
      socket.close();
      chromium.kill();
      chromium.on("exit", () => rmSync(profile, { recursive: true, force: true }));
    },
  };
}

export const CONNECTED = `document.getElementById("dot")?.className === "dot on"`;
export const ALARM = `(document.getElementById("alarm")?.textContent ?? "")`;

// What is wrong with names, labels, contrast and the reach of the keyboard, in the page as it is.
export const AUDIT = `(() => {
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
    if (e.tagName === "DIALOG" && e.open && !document.getElementById(e.getAttribute("aria-labelledby"))?.textContent) found.push("dialog without a name");
    if (e.tagName === "svg" && !e.getAttribute("aria-label")) found.push("drawing without a name");
    if (e.scrollHeight > e.clientHeight + 2 && /auto|scroll/.test(getComputedStyle(e).overflowY) && e.tabIndex < 0 && !e.querySelector("a,button,[tabindex]")) found.push("cannot be scrolled by keyboard: " + e.className);
  }
  if (document.documentElement.scrollWidth > innerWidth + 1) found.push("wider than the window: " + document.documentElement.scrollWidth);
  if (document.querySelector("main img, main script, .row img, .row script, aside img, dialog img")) found.push("markup in a name became an element");
  if (document.documentElement.lang !== "en" || !document.title) found.push("no language or title");
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id); if (new Set(ids).size !== ids.length) found.push("an id twice");
  return found;
})()`;

// Every view, by its address.
export const VIEWS = { locks: "#/locks?at=%2Fdeploy%2Fweb", elections: "#/elections?at=%2Fservices%2Fbilling%2Fleader", queues: "#/queues?at=%2Fjobs%2Fimages", groups: "#/groups?at=%2Flicences", sessions: "#/sessions", graph: "#/graph", history: "#/history", ensemble: "#/ensemble", tree: "#/tree?at=%2Fdeploy%2Fweb" };

// Opens a view, and returns how many milliseconds that took.
export async function open(page, name, hash) {
  const began = Date.now();
  await page.evaluate(`location.hash = ${JSON.stringify(hash)}`);
  await page.expect(`${name}: the view does not open`, `document.querySelector('#nav a[aria-current]')?.getAttribute("href").startsWith("#/${name}") && document.querySelector("main").textContent.trim().length > 0`);
  return Date.now() - began;
}
