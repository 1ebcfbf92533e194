// A headless Chromium over its DevTools protocol: opens pages, presses keys, takes pictures, and
// collects what the browser reports. No package is needed.

import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// The windows in which each view is looked at; the pictures of the pages are of the first.
export const SIZES = [[1400, 900], [800, 600], [390, 844]];

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
  const resize = ([width, height]) => send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: false });
  await resize(SIZES[0]);
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
  const axe = process.env.AXE ? readFileSync(process.env.AXE, "utf8") : null;
  return {
    problems,
    send,
    resize,
    // What is wrong with the page as it is.
    audit: async (label) => {
      const found = [...(await evaluate(AUDIT)), ...(await evaluate(LAYOUT))];
      if (axe) {
        if (!(await evaluate(`Boolean(window.axe)`))) await evaluate(`(() => { ${axe}\n })()`);
        found.push(...(await evaluate(AXE)));
      }
      for (const one of new Set(found)) problems.push(`${label}: ${one}`);
    },
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

// Looks at every view in every window, in light and dark: what is wrong there, and a picture.
export async function look(page, views, prefix, only) {
  for (const size of SIZES) {
    await page.resize(size);
    for (const theme of ["light", "dark"]) {
      await page.theme(theme);
      for (const [name, hash] of Object.entries(views)) {
        if (only && only !== name) continue;
        await open(page, name, hash);
        await sleep(700);
        const label = `${prefix}${name}-${size[0]}${theme === "dark" ? "-dark" : ""}`;
        await page.audit(label);
        await page.picture(label);
      }
    }
  }
  await page.theme("light");
  await page.resize(SIZES[0]);
}

// What is wrong with names, labels, contrast and the reach of the keyboard, in the page as it is.
const AUDIT = `(() => {
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

// Text that lies on other text, or that is cut without a sign.
export const LAYOUT = `(() => {
  const found = [], seen = [];
  const cuts = (e) => /hidden|auto|scroll|clip/.test(getComputedStyle(e).overflowX + getComputedStyle(e).overflowY);
  for (const e of document.querySelectorAll("body *")) {
    if (!e.checkVisibility() || e.closest(".hidden,.skip,option") || e instanceof SVGElement && e.tagName !== "text") continue;
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
    let { left, top, right, bottom } = e.getBoundingClientRect();
    for (let up = e.parentElement; up; up = up.parentElement) {
      if (!cuts(up)) continue;
      const r = up.getBoundingClientRect();
      [left, top, right, bottom] = [Math.max(left, r.left), Math.max(top, r.top), Math.min(right, r.right), Math.min(bottom, r.bottom)];
    }
    [left, top, right, bottom] = [Math.max(left, 0), Math.max(top, 0), Math.min(right, innerWidth), Math.min(bottom, innerHeight)];
    if (right - left < 3 || bottom - top < 3) continue;
    const front = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
    if (!front || !(e.contains(front) || front.contains(e))) continue;
    const style = getComputedStyle(e);
    if (e.scrollWidth > e.clientWidth + 1 && e.clientWidth && style.overflowX === "hidden" && style.textOverflow !== "ellipsis") found.push("cut without a sign: " + e.textContent.slice(0, 40));
    if (e.tagName !== "text" && style.display !== "inline" && style.overflowX === "visible" && e.scrollWidth > e.clientWidth + 1 && e.clientWidth) found.push("wider than its place: " + e.tagName + "." + e.className + " " + e.textContent.slice(0, 40));
    seen.push({ e, left, top, right, bottom });
  }
  for (const [at, one] of seen.entries()) for (const other of seen.slice(at + 1)) {
    if (one.e.contains(other.e) || other.e.contains(one.e)) continue;
    const [x, y] = [Math.min(one.right, other.right) - Math.max(one.left, other.left), Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top)];
    if (x > 2 && y > 3) found.push("on one another: " + one.e.textContent.slice(0, 30) + " / " + other.e.textContent.slice(0, 30));
  }
  return found;
})()`;

// Findings of axe-core, which the command has fetched.
const AXE = `axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) => violations.map((found) => "axe " + found.id + ": " + found.help + ": " + found.nodes.slice(0, 3).map((node) => node.target.join(" ")).join(", ")))`;

// Every view, by its address.
export const VIEWS = { locks: "#/locks?at=%2Fdeploy%2Fweb", elections: "#/elections?at=%2Fservices%2Fbilling%2Fleader", queues: "#/queues?at=%2Fjobs%2Fimages", groups: "#/groups?at=%2Flicences", sessions: "#/sessions", graph: "#/graph", history: "#/history", ensemble: "#/ensemble", tree: "#/tree?at=%2Fdeploy%2Fweb" };

// Opens a view, and returns how many milliseconds that took.
export async function open(page, name, hash) {
  const began = Date.now();
  await page.evaluate(`location.hash = ${JSON.stringify(hash)}`);
  await page.expect(`${name}: the view does not open`, `document.querySelector('#nav a[aria-current]')?.getAttribute("href").startsWith("#/${name}") && document.querySelector("main").textContent.trim().length > 0`);
  return Date.now() - began;
}
