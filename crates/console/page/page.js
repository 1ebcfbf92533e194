// The page: which view is open, search, keyboard, theme, and the dialog of an action.

import { empty, Grid, h, number, setNow } from "./dom.js";
import { act as send, follow, kind, onchange, rows, setToken, state, takeToken } from "./store.js";
import { ensembleView, graphView, loadPast, matches, onredraw, pastDetail, prepare, recipeDetail, sessionDetail, tables, treeView } from "./views.js";

const get = (id) => document.getElementById(id);
const VIEWS = [["locks", "Locks"], ["elections", "Elections"], ["queues", "Queues"], ["groups", "Semaphores, barriers, members"], ["sessions", "Sessions"], ["graph", "Who waits for whom"], ["history", "History"], ["ensemble", "Ensemble"], ["tree", "Tree"]];
let place = { view: "locks", at: null, q: "" };
let grid = null;
let drawn = 0;
let detailKey = null;
let detailRow = null;

// The fragment says which view, which row and which search: a link to it shows the same.
function readPlace() {
  const [view, query] = location.hash.replace(/^#\/?/, "").split("?");
  const parameters = new URLSearchParams(query ?? "");
  const known = VIEWS.some(([name]) => name === view) ? view : "locks";
  return { view: known, at: parameters.get("at"), q: parameters.get("q") ?? "" };
}

function link({ view, at, q }) {
  const parameters = new URLSearchParams();
  if (at) parameters.set("at", at);
  if (q) parameters.set("q", q);
  const query = parameters.toString();
  return `#/${view}${query ? `?${query}` : ""}`;
}

function go(next) {
  const to = link({ ...place, ...next });
  if (location.hash === to) return;
  history.pushState(null, "", to);
  arrive();
}

function arrive() {
  const before = place;
  place = readPlace();
  get("search").value = place.q;
  if (before.view !== place.view || !drawn || place.view === "tree") open();
  else draw();
}

function tabs() {
  const cycles = kind("deadlock").size;
  const counts = { graph: cycles ? h("span.count.bad", {}, `${number(cycles)} ${cycles === 1 ? "deadlock" : "deadlocks"}`) : null, ensemble: count(kind("server").size) };
  for (const name of Object.keys(tables)) if (name !== "history") counts[name] = count(tables[name].rows().length);
  get("nav").replaceChildren(...VIEWS.map(([name, title], at) => h("a", { href: link({ view: name, q: place.q }), "aria-current": name === place.view ? "page" : null, title: `${title}: key ${at + 1}` }, title, counts[name])));
  get("nav").querySelector("[aria-current]").scrollIntoView({ block: "nearest", inline: "nearest" });
}

const count = (value) => h("span.count", {}, number(value));

function open() {
  drawn += 1;
  grid = null;
  const table = tables[place.view];
  document.title = `${VIEWS.find(([name]) => name === place.view)[1]} · Baton console`;
  closeDetail(false);
  if (table) {
    grid = new Grid({ label: table.title, columns: table.columns, key: table.key ?? ((row) => row.path), sort: { ...table.sort }, blank: () => (place.q ? empty("Nothing matches", `No line has "${place.q}" in its path, host or session.`) : state.connected ? table.blank() : empty("Connecting", "The first survey of a large tree takes a few seconds.")), onopen: (row) => go({ at: grid.key(row) }) });
    get("main").replaceChildren(h("h2.hidden", {}, table.title), h("p.summary", { id: "summary" }), grid.element);
  }
  past();
  draw();
}

async function draw() {
  tabs();
  status();
  const mine = drawn;
  const isCurrent = () => mine === drawn;
  const table = tables[place.view];
  if (table) {
    const all = table.rows();
    prepare(place.view, all);
    const needle = place.q.trim().toLowerCase();
    const shown = needle ? all.filter((row) => matches(row, needle)) : all;
    const summary = table.summary(all).filter(Boolean);
    if (needle) summary.unshift(`${number(shown.length)} match`);
    // A user who types there is not interrupted.
    if (!get("summary").contains(document.activeElement)) get("summary").replaceChildren(...summary.map((part) => (part instanceof Element && part.tagName === "svg" ? part : h("span", {}, part))));
    grid.selected = place.at;
    grid.set(shown);
    await detail(all.find((row) => grid.key(row) === place.at));
    return;
  }
  try {
    const parts = place.view === "graph" ? graphView() : place.view === "ensemble" ? ensembleView() : await treeView(place.at ?? "/", go, isCurrent);
    if (!isCurrent() || !parts) return;
    const title = h("h1.hidden", {}, VIEWS.find(([name]) => name === place.view)[1]);
    get("main").replaceChildren(title, ...(place.view === "tree" ? parts.filter(Boolean) : [h("div.sheet", { tabindex: 0, role: "region", "aria-label": place.view }, parts.filter(Boolean))]));
  } catch (error) {
    if (isCurrent()) get("main").replaceChildren(empty("It cannot be shown", error.message));
  }
}

// Details are asked for again only when their row has changed.
async function detail(row) {
  if (!place.at) return closeDetail(false);
  const key = `${place.view} ${place.at}`;
  if (!row) {
    if (state.connected) showDetail(key, [h("p.soft", {}, "It is gone: nobody holds it and nobody waits.")]);
    return;
  }
  const same = JSON.stringify(row);
  if (detailKey === key && detailRow === same) return;
  detailRow = same;
  try {
    const isCurrent = () => `${place.view} ${place.at}` === key;
    const parts = place.view === "sessions" ? sessionDetail(row) : place.view === "history" ? await pastDetail(row, isCurrent) : await recipeDetail(row, act, isCurrent);
    if (parts && isCurrent()) showDetail(key, parts);
  } catch (error) {
    showDetail(key, [h("p.error", {}, error.message)]);
  }
}

function showDetail(key, parts) {
  const panel = get("detail");
  const top = detailKey === key ? panel.scrollTop : 0;
  detailKey = key;
  panel.hidden = false;
  panel.replaceChildren(h("div.head", {}, h("h2.mono", {}, place.at), h("button.quiet", { type: "button", "aria-label": "Close details", onclick: () => closeDetail(true) }, "✕")), ...parts.flat().filter(Boolean));
  panel.scrollTop = top;
}

function closeDetail(leave) {
  get("detail").hidden = true;
  get("detail").replaceChildren();
  detailKey = detailRow = null;
  if (leave) {
    go({ at: null });
    grid?.element.focus();
  }
}

function status() {
  const meta = rows.get("meta")?.get("");
  const failure = !state.connected ? state.error?.message ?? "connecting" : meta?.error;
  get("dot").className = `dot ${failure ? (state.error || meta?.error ? "off" : "") : "on"}`;
  get("servers").textContent = meta?.servers ?? "connecting";
  const alarm = get("alarm");
  const lines = [];
  if ([401, 403, 421].includes(state.error?.status)) lines.push(`${state.error.message}. `, h("button", { type: "button", onclick: identify }, "Authenticate"));
  else if (failure && state.error) lines.push(`The console cannot be reached: ${failure}. What is shown may be old; it is tried again.`);
  else if (meta?.error) lines.push(`The survey stopped: ${meta.error}. What is shown may be old; it is tried again.`);
  else if (meta?.partial) lines.push("The tree is larger than the survey's bounds: some of it is not shown.");
  const said = lines.map((line) => line.textContent ?? line).join("");
  if (alarm.dataset.said !== said) {
    alarm.dataset.said = said;
    alarm.replaceChildren(...lines);
  }
}

function identify() {
  const field = h("input", { type: "password", "aria-label": "Who you are", "aria-describedby": "who-help", autocomplete: "off" });
  const dialog = get("dialog");
  get("dialog-title").textContent = "Who are you?";
  get("dialog-text").replaceChildren(field, h("p.soft", { id: "who-help" }, "USER:PASSWORD, as ACLs know it; or a token of the server; or x509 for this browser's certificate. It stays in this tab; an empty field forgets it."));
  get("dialog-error").textContent = "";
  const button = get("dialog-do");
  button.textContent = "Show";
  button.disabled = false;
  button.className = "primary";
  const done = () => { setToken(field.value.trim()); dialog.close(); location.reload(); };
  button.onclick = done;
  field.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); done(); } });
  dialog.showModal();
  field.focus();
}

// An action says first what it will do.
async function act(title, what, isGrave) {
  const dialog = get("dialog");
  const [words, error, button] = [get("dialog-text"), get("dialog-error"), get("dialog-do")];
  get("dialog-title").textContent = title;
  words.replaceChildren(h("p.soft", {}, "Looking at what it will do …"));
  error.textContent = "";
  button.textContent = title;
  button.className = isGrave ? "danger" : "primary";
  button.disabled = true;
  button.hidden = false;
  dialog.showModal();
  try {
    const preview = await send(what, false);
    words.replaceChildren(h("p", {}, preview.text));
    button.disabled = false;
  } catch (failure) {
    error.textContent = failure.message;
  }
  button.onclick = async () => {
    button.disabled = true;
    try {
      const done = await send(what, true);
      words.replaceChildren(h("p", {}, done.text));
      button.hidden = true;
      get("dialog-cancel").textContent = "Close";
      detailRow = null;
    } catch (failure) {
      error.textContent = failure.message;
    }
  };
}

function keys(event) {
  const inField = /^(INPUT|TEXTAREA)$/.test(event.target.tagName);
  if (event.ctrlKey || event.metaKey || event.altKey || get("dialog").open) return;
  if (event.key === "Escape") {
    if (inField) { event.target.blur(); if (place.q) go({ q: "" }); } else if (place.at && tables[place.view]) closeDetail(true);
    return;
  }
  if (inField) {
    if (event.key === "Enter" || event.key === "ArrowDown") { event.preventDefault(); grid?.element.focus(); grid?.choose(0, false); }
    return;
  }
  const nth = Number(event.key);
  if (event.key === "/") { event.preventDefault(); get("search").focus(); get("search").select(); }
  else if (nth >= 1 && nth <= VIEWS.length) { go({ view: VIEWS[nth - 1][0], at: null }); get("main").focus(); }
  else if (event.key === "?") shortcuts();
  else if (["j", "k"].includes(event.key) && grid) { grid.element.focus(); grid.press(event); }
}

function shortcuts() {
  const line = (key, what) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)];
  get("dialog-title").textContent = "Keyboard";
  get("dialog-text").replaceChildren(h("dl", {}, line("1 – 9", "the views"), line("/", "search"), line("j k ↓ ↑", "the next and the previous line"), line("Enter", "its details"), line("Esc", "close, or leave the search"), line("?", "this list")));
  get("dialog-error").textContent = "";
  get("dialog-do").hidden = true;
  get("dialog-cancel").textContent = "Close";
  get("dialog").showModal();
}

const THEMES = ["system", "light", "dark"];
function theme(chosen) {
  localStorage.setItem("baton-console-theme", chosen);
  if (chosen === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
  get("theme").textContent = `Theme: ${chosen}`;
}

takeToken();
theme(THEMES.includes(localStorage.getItem("baton-console-theme")) ? localStorage.getItem("baton-console-theme") : "system");
get("theme").addEventListener("click", () => theme(THEMES[(THEMES.indexOf(localStorage.getItem("baton-console-theme")) + 1) % 3]));
get("help").addEventListener("click", shortcuts);
get("search").addEventListener("input", (event) => {
  history.replaceState(null, "", link({ ...place, q: event.target.value }));
  place = readPlace();
  draw();
});
get("dialog").addEventListener("close", () => { get("dialog-do").hidden = false; get("dialog-cancel").textContent = "Cancel"; });
window.addEventListener("hashchange", arrive);
window.addEventListener("popstate", arrive);
document.addEventListener("keydown", keys);
// Ages grow by themselves; what is asked for by path is asked for again now and then.
setInterval(() => grid?.draw(), 1000);
// The history is no row of the survey: it is asked for while it is looked at.
const past = () => { if (place.view === "history" && state.connected) loadPast().then(draw, () => {}); };
setInterval(past, 3000);
onredraw(() => draw());
let graphDue = 0;
onchange(() => {
  if (tables[place.view] || place.view === "ensemble") return draw();
  tabs();
  status();
  if (place.view === "graph" && Date.now() - graphDue > 2000) { graphDue = Date.now(); draw(); }
});
arrive();
follow((known) => {
  setNow(known.now_ms);
  const change = h("button.quiet", { type: "button", onclick: identify }, "Act as …");
  get("who").replaceChildren(h("span", {}, known.may_act ? known.who : `${known.who} · read only`, !known.may_act && [" ", change]));
});
