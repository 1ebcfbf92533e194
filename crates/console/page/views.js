// The views: what each row shows, and what its details say.

import { age, empty, Grid, h, moment, now, number, svg, text, who } from "./dom.js";
import { ask, kind, rows, state } from "./store.js";

const path = (row) => row.path;
const tag = (label, level) => h(level ? `span.tag.${level}` : "span.tag", {}, label);
const stuck = () => new Set([...kind("deadlock").values()].flatMap((cycle) => cycle.steps.flatMap((step) => [step.waiter.session, step.blocker.session])));

function named(row, ...tags) {
  return h("span", { title: row.path }, h("span.mono", {}, row.path), tags);
}

function heldSince(row) {
  const seen = row.past?.held_since_ms;
  return seen ?? row.holders[0]?.since_ms;
}

// Since when somebody holds is only known if the survey has seen the hand-over; else it is at most
// as long as the holder's node has existed.
function heldFor(row) {
  if (!row.holders.length) return h("span.soft", {}, "–");
  const seen = row.past?.held_since_ms;
  const title = seen ? `seen to hold since ${moment(seen)}` : `its node exists since ${moment(row.holders[0].since_ms)}; it may hold for less`;
  return h("span", { title }, (seen ? "" : "≤ ") + age(heldSince(row)));
}

const waitingBar = (row, most) => {
  const bar = h("i");
  bar.style.width = `${Math.min(100, (100 * row.waiting) / Math.max(1, most))}%`;
  return h("span", {}, row.waiting ? h("span.bar", { "aria-hidden": "true" }, bar) : null, number(row.waiting));
};

let mostWaiting = 1;

const holderCell = (row) => {
  if (!row.held) return h("span.soft", {}, row.waiting ? "nobody yet" : "free");
  const more = row.held > 1 ? h("span.soft", {}, ` +${number(row.held - 1)}`) : null;
  return h("span", { title: row.holders.map(who).join("\n") }, who(row.holders[0]), more);
};

const lockColumns = [
  { label: "Path", stack: 1, width: "minmax(220px, 2.2fr)", sort: path, cell: (row) => named(row, row.holders[0]?.asked && tag("asked to release", "warn"), row.mixed && tag("mixed", "bad"), row.foreign && tag(`${row.foreign} foreign`, "warn"), row.holders.some((holder) => stuckNow.has(holder.session)) && row.waiting && tag("deadlock", "bad")) },
  { label: "Holder", stack: 2, width: "minmax(150px, 1.6fr)", sort: (row) => (row.held ? who(row.holders[0]) : undefined), cell: holderCell },
  { label: "Held for", drop: 1, width: "104px", right: true, down: true, sort: (row) => (row.held ? now() - heldSince(row) : undefined), cell: heldFor },
  { label: "Waiting", stack: 3, width: "112px", right: true, down: true, sort: (row) => row.waiting, cell: (row) => waitingBar(row, mostWaiting) },
  { label: "First waits", drop: 2, width: "104px", right: true, down: true, sort: (row) => (row.next ? now() - row.next.since_ms : undefined), cell: (row) => (row.next ? age(row.next.since_ms) : h("span.soft", {}, "–")) },
  { label: "Token", drop: 3, width: "84px", right: true, mono: true, sort: (row) => Number(row.holders[0]?.token ?? -1), cell: (row) => row.holders[0]?.token ?? h("span.soft", {}, "–") },
  { label: "Names", drop: 4, width: "110px", sort: (row) => row.dialect, cell: (row) => h("span.soft", {}, (row.kind === "read_write" ? "rw · " : "") + (row.dialect ?? "–")) },
];

let stuckNow = new Set();
let redraw = () => {};
export function onredraw(draw) { redraw = draw; }

const semaphoreColumns = [
  lockColumns[0],
  { label: "Kind", drop: 2, width: "110px", sort: (row) => row.kind, cell: (row) => (row.kind === "double" ? "double barrier" : row.kind) },
  { label: "State", stack: 2, width: "minmax(170px, 1fr)", sort: (row) => standing(row), cell: (row) => standing(row) },
  { label: "Present", drop: 1, width: "minmax(170px, 1.6fr)", sort: (row) => row.held, down: true, cell: (row) => (row.held ? holderCell(row) : h("span.soft", {}, "–")) },
  { label: "Waiting", stack: 3, width: "112px", right: true, down: true, sort: (row) => row.waiting, cell: (row) => waitingBar(row, mostWaiting) },
];

function standing(row) {
  if (row.kind === "semaphore") return row.permits === undefined ? `${number(row.held)} permits held` : `${number(row.held)} of ${number(row.permits)} permits held`;
  if (row.kind === "members") return `${number(row.held)} members`;
  const barrier = row.barrier;
  if (!barrier) return "–";
  return barrier.left ? `${barrier.phase}, ${number(barrier.count - barrier.left)} of ${number(barrier.count)} have come` : barrier.phase;
}

const electionColumns = [
  lockColumns[0],
  { label: "Leader", stack: 2, width: "minmax(150px, 1.6fr)", sort: (row) => who(row.holders[0]), cell: holderCell },
  { label: "Leads for", drop: 1, width: "112px", right: true, down: true, sort: lockColumns[2].sort, cell: heldFor },
  { label: "Term", drop: 2, width: "70px", right: true, down: true, sort: (row) => row.term, cell: (row) => row.term ?? h("span.soft", {}, "–") },
  { label: "Token", drop: 3, width: "84px", right: true, mono: true, sort: lockColumns[5].sort, cell: lockColumns[5].cell },
  { label: "Waiting", stack: 3, width: "100px", right: true, down: true, sort: (row) => row.waiting, cell: (row) => number(row.waiting) },
  { label: "Changes seen", drop: 4, width: "110px", right: true, down: true, sort: (row) => row.past?.hand_overs ?? 0, cell: (row) => number(row.past?.hand_overs ?? 0) },
];

const queueColumns = [
  { ...lockColumns[0], cell: (row) => named(row, row.queue.dead > 0 && tag(`${number(row.queue.dead)} dead`, "bad")) },
  { label: "Items", stack: 2, width: "120px", right: true, down: true, sort: (row) => row.queue.depth, cell: (row) => (row.queue.capacity === null ? number(row.queue.depth) : `${number(row.queue.depth)} of ${number(row.queue.capacity)}`) },
  { label: "Oldest", stack: 3, width: "104px", right: true, down: true, sort: (row) => (row.queue.oldest_since_ms === null ? undefined : now() - row.queue.oldest_since_ms), cell: (row) => age(row.queue.oldest_since_ms) },
  { label: "Put /s", drop: 3, width: "80px", right: true, down: true, sort: (row) => row.past?.rates?.put ?? 0, cell: (row) => (row.past?.rates?.put ?? 0).toFixed(2) },
  { label: "Taken /s", drop: 3, width: "80px", right: true, down: true, sort: (row) => row.past?.rates?.taken ?? 0, cell: (row) => (row.past?.rates?.taken ?? 0).toFixed(2) },
  { label: "Claimed", drop: 1, width: "84px", right: true, down: true, sort: (row) => row.queue.claimed, cell: (row) => (row.queue.partly_read ? "≥ " : "") + number(row.queue.claimed) },
  { label: "Retried", drop: 2, width: "80px", right: true, down: true, sort: (row) => row.queue.retried, cell: (row) => number(row.queue.retried) },
  { label: "Dead", width: "70px", right: true, down: true, sort: (row) => row.queue.dead, cell: (row) => (row.queue.dead ? h("span.bad", {}, number(row.queue.dead)) : h("span.soft", {}, "0")) },
  { label: "Layout", drop: 4, width: "104px", sort: (row) => row.dialect, cell: (row) => h("span.soft", {}, row.dialect) },
];

const uses = (list, count) => (count ? h("span", { title: list.map((use) => text(use.path)).join("\n") }, h("span.mono", {}, list[0].path), count > 1 && h("span.soft", {}, ` +${number(count - 1)}`)) : h("span.soft", {}, "–"));

const sessionColumns = [
  { label: "Session", stack: 3, width: "170px", mono: true, sort: (row) => row.session, cell: (row) => row.session },
  { label: "Process", stack: 1, width: "minmax(130px, 1.2fr)", sort: (row) => row.process ?? undefined, cell: (row) => h("span", { title: row.process ?? "" }, row.process ?? h("span.soft", {}, "–"), stuckNow.has(row.session) && tag("deadlock", "bad")) },
  { label: "Client", drop: 3, width: "170px", mono: true, sort: (row) => row.client?.client, cell: (row) => row.client?.client ?? h("span.soft", {}, "–") },
  { label: "Timeout", drop: 4, width: "80px", right: true, down: true, sort: (row) => row.client?.timeout_ms ?? undefined, cell: (row) => (row.client?.timeout_ms ? `${row.client.timeout_ms / 1000} s` : h("span.soft", {}, "–")) },
  { label: "Last heard", drop: 4, width: "96px", right: true, down: true, sort: (row) => row.client?.last_heard_ms ?? undefined, cell: (row) => (row.client?.last_heard_ms ? h("span.warn", {}, age(row.client.last_heard_ms)) : h("span.soft", {}, row.client?.timeout_ms ? `< ${row.client.timeout_ms / 2000} s` : "–")) },
  { label: "Holds", stack: 2, width: "minmax(130px, 1.4fr)", down: true, sort: (row) => row.held, cell: (row) => uses(row.holds, row.held) },
  { label: "Waits for", drop: 1, width: "minmax(130px, 1.4fr)", down: true, sort: (row) => row.waiting, cell: (row) => uses(row.waits, row.waiting) },
];

function sessionRows() {
  const all = new Map();
  for (const [id, client] of kind("client")) all.set(id, { session: `0x${id}`, holds: [], held: 0, waits: [], waiting: 0, nodes: 0, process: null, client });
  for (const [id, row] of kind("session")) all.set(id, { ...row, client: kind("client").get(id) });
  return [...all.values()];
}

// How a command reaches the servers that are shown.
const toServers = () => (rows.get("meta")?.get("")?.servers ? ` --servers ${rows.get("meta").get("").servers}` : "");

// Holds of the last hour, as the server keeps them.
const past = { holds: [], isKept: true, at: "" };

export async function loadPast() {
  const at = momentOf(past.at);
  const found = await ask("holds", at === null ? {} : { at_ms: at });
  Object.assign(past, { holds: found.holds, isKept: found.is_kept });
}

// The newest moment of the past with this time of day.
function momentOf(time) {
  const parts = /^(\d\d):(\d\d)(?::(\d\d))?/.exec(time);
  if (!parts) return null;
  const today = new Date(now());
  const at = Date.UTC(today.getUTCFullYear(), today.getUTCMonth(), today.getUTCDate(), ...parts.slice(1).map((part) => Number(part ?? 0)));
  return at > now() ? at - 86400000 : at;
}

const ENDS = { released: ["released"], session_closed: ["session closed", "warn"], session_expired: ["expired", "bad"], broken: ["broken", "bad"] };
const endTag = (hold) => (hold.end ? tag(...ENDS[hold.end]) : tag("holds now", "good"));
const lasted = (ms) => age(now() - ms);
const heldMs = (hold) => (hold.until_ms ?? now()) - hold.from_ms;
const holder = (hold) => hold.process ?? `session ${hold.session}`;

const pastColumns = [
  { label: "Lock", stack: 1, width: "minmax(200px, 2fr)", sort: path, cell: (row) => named(row) },
  { label: "Holder", stack: 2, width: "minmax(150px, 1.6fr)", sort: holder, cell: holder },
  { label: "From", drop: 1, width: "170px", down: true, sort: (row) => row.from_ms, cell: (row) => moment(row.from_ms) },
  { label: "Until", drop: 2, width: "170px", down: true, sort: (row) => row.until_ms ?? Infinity, cell: (row) => (row.until_ms === null ? "–" : moment(row.until_ms)) },
  { label: "Held for", drop: 3, width: "104px", right: true, down: true, sort: heldMs, cell: (row) => lasted(heldMs(row)) },
  { label: "Waited", drop: 4, width: "96px", right: true, down: true, sort: (row) => row.waited_ms, cell: (row) => lasted(row.waited_ms) },
  { label: "End", stack: 3, width: "120px", sort: (row) => row.end ?? "", cell: endTag },
];

// Ends in each minute of the last hour; those that nobody wished for in red.
function minutes(holds) {
  const counts = Array.from({ length: 60 }, () => [0, 0]);
  for (const hold of holds) {
    const ago = Math.floor((now() - hold.until_ms) / 60000);
    if (hold.until_ms !== null && counts[59 - ago]) counts[59 - ago][Number(["session_expired", "broken"].includes(hold.end))] += 1;
  }
  const most = Math.max(1, ...counts.map(([fine, bad]) => fine + bad));
  const bars = counts.flatMap(([fine, bad], at) => {
    const bar = (count, from, kind) => svg("rect", { class: kind, x: at * 10 + 1, width: 8, y: 40 - (40 * (from + count)) / most, height: (40 * count) / most });
    return [bar(bad, 0, "bad"), bar(fine, bad, "fine")];
  });
  return svg("svg", { class: "minutes", viewBox: "0 0 600 40", preserveAspectRatio: "none", role: "img", "aria-label": `Ends of holds in each minute of the last hour: ${number(holds.filter((hold) => hold.end).length)} in all, at most ${number(most)} in a minute` }, bars);
}

// The times of the newest holds of a lock, oldest first.
function spark(label, holds, value) {
  const newest = holds.slice(0, 60).reverse();
  const most = Math.max(1, ...newest.map(value));
  const bars = newest.map((hold, at) => svg("rect", { class: ["session_expired", "broken"].includes(hold.end) ? "bad" : "fine", x: at * 6, width: 5, y: 30 - Math.max(1, (30 * value(hold)) / most), height: Math.max(1, (30 * value(hold)) / most) }));
  return [h("p.soft", {}, `${label}, at most ${lasted(most)}`), svg("svg", { class: "spark", viewBox: `0 0 ${6 * newest.length} 30`, width: 6 * newest.length, height: 30, role: "img", "aria-label": `${label} of the last ${newest.length} holders, at most ${lasted(most)}` }, bars)];
}

async function lastHour(at) {
  const { holds, is_kept: isKept } = await ask("holds", { path: at });
  if (!isKept || !holds.length) return null;
  return [h("h3", {}, `In the last hour · ${number(holds.length)}`), spark("Held", holds, heldMs), spark("Waited", holds, (hold) => hold.waited_ms),
    h("div.list", {}, holds.slice(0, 50).map((hold) => h("div", {}, h("div.grow", {}, holder(hold), h("div.soft", {}, `${moment(hold.from_ms)} – ${hold.until_ms === null ? "now" : moment(hold.until_ms)}`)), endTag(hold)))),
    holds.length > 50 && h("p.soft", {}, `and ${number(holds.length - 50)} before`)];
}

export async function pastDetail(row, isCurrent) {
  const hour = await lastHour(row.path);
  if (!isCurrent()) return null;
  return [h("dl", {}, fact("Lock", h("a.link.mono", { href: `#/${viewOf(row.path)}?at=${encodeURIComponent(row.path)}` }, row.path)), fact("Holder", row.process), fact("Session", toSession(row.session)), fact("Node made by change", row.czxid)), hour];
}

const recipesOf = (...kinds) => () => kinds.flatMap((name) => [...kind(name).values()]);

export const tables = {
  locks: {
    title: "Locks", columns: lockColumns, sort: { by: 3, down: true },
    rows: () => [...kind("lock").values()].filter((row) => row.kind !== "semaphore"),
    blank: () => empty("No locks", `Nobody holds or waits. Take one: baton lock${toServers()} /demo -- sleep 60, and its line appears here within a second.`),
    summary: (all) => [`${number(all.length)} locks`, `${number(all.filter((row) => row.held).length)} held`, `${number(all.reduce((sum, row) => sum + row.waiting, 0))} waiting`],
  },
  elections: {
    title: "Elections", columns: electionColumns, sort: { by: 0, down: false }, rows: recipesOf("election"),
    blank: () => empty("No elections", `No process stands for one. Try: baton elect${toServers()} /leader -- sleep 60.`),
    summary: (all) => [`${number(all.length)} elections`, `${number(all.filter((row) => row.held).length)} with a leader`],
  },
  queues: {
    title: "Queues", columns: queueColumns, sort: { by: 2, down: true }, rows: recipesOf("queue"),
    blank: () => empty("No queues", `A queue appears with its first item. Try: baton queue work put${toServers()} /jobs hello.`),
    summary: (all) => [`${number(all.length)} queues`, `${number(all.reduce((sum, row) => sum + row.queue.depth, 0))} items`, `${number(all.reduce((sum, row) => sum + row.queue.dead, 0))} dead letters`],
  },
  groups: {
    title: "Semaphores, barriers, members", columns: semaphoreColumns, sort: { by: 0, down: false },
    rows: () => [...[...kind("lock").values()].filter((row) => row.kind === "semaphore"), ...kind("barrier").values(), ...kind("members").values()],
    blank: () => empty("No semaphores, barriers or groups", `Try: baton sem${toServers()} /licences --slots 3 -- sleep 60, or baton member join${toServers()} /web.`),
    summary: (all) => [`${number(all.length)} in all`],
  },
  history: {
    title: "History", columns: pastColumns, sort: { by: 2, down: true }, rows: () => past.holds, key: (row) => `${row.path} ${row.czxid}`,
    blank: () => (past.isKept ? empty("Nothing ended in the last hour", past.at ? "Nobody held anything at that time." : "A line appears here for each hold of a lock, an election or a semaphore.") : empty("No history", "A server keeps the last hour: open its own page, at its --http address.")),
    summary: (all) => {
      if (!past.isKept) return [];
      const bad = all.filter((row) => ["session_expired", "broken"].includes(row.end)).length;
      const field = h("input", { type: "time", step: 1, value: past.at, onchange: (event) => { past.at = event.target.value; loadPast().then(() => redraw(), () => {}); } });
      return [`${number(all.length)} holds in the last hour`, bad ? h("span.bad", {}, `${number(bad)} expired or broken`) : null, h("label", {}, "Who held at ", field, " UTC"), minutes(all)];
    },
  },
  sessions: {
    title: "Sessions", columns: sessionColumns, sort: { by: 6, down: true }, rows: sessionRows, key: (row) => row.session,
    blank: () => empty("No sessions", "No session owns a node, and no server has named its connections."),
    summary: (all) => [`${number(all.length)} sessions`, `${number(all.filter((row) => row.waiting).length)} wait`, kind("client").size ? null : "no server names its connections: allow the word cons there (four-letter words, 4lw.commands.whitelist)"],
  },
};

export function prepare(name, all) {
  stuckNow = stuck();
  mostWaiting = all.reduce((most, row) => Math.max(most, row.waiting ?? 0), 1);
}

export function matches(row, needle) {
  if (!needle) return true;
  const parts = [row.path, row.dialect, row.session, row.process, row.client?.client, ...(row.holders ?? []).flatMap((party) => [who(party), party.session, party.node]), row.next && who(row.next), ...(row.holds ?? []).map((use) => use.path), ...(row.waits ?? []).map((use) => use.path)];
  return parts.some((part) => part && String(part).toLowerCase().includes(needle));
}

// Details of one row.

const fact = (name, value) => (value === undefined || value === null || value === "" ? [] : [h("dt", {}, name), h("dd", {}, value)]);
const toSession = (id) => h("a.link.mono", { href: `#/sessions?at=${encodeURIComponent(id)}` }, id);
const toTree = (node) => h("a.link.mono", { href: `#/tree?at=${encodeURIComponent(node)}` }, node);

function party(one, buttons) {
  return h("div", {}, h("div.grow", {}, h("div", {}, who(one), one.asked && tag("asked to release", "warn")), h("div.soft", {}, toSession(one.session), one.token !== undefined && ` · token ${one.token}`, one.mode && one.mode !== "exclusive" && ` · ${one.mode}`, ` · node ${age(one.since_ms)} old`, one.item && h("div", {}, "item ", toTree(one.item)))), buttons);
}

export async function recipeDetail(row, act, isCurrent) {
  const found = await ask("recipe", { path: row.path });
  if (!isCurrent()) return null;
  const parts = [];
  const isQueue = Boolean(found.queue);
  const mayBreak = !found.barrier && found.kind !== "members" && !isQueue;
  parts.push(h("dl", {}, fact("Node", toTree(found.path)), fact("Kind", found.term !== undefined || kind("election").has(found.path) ? "election" : found.kind?.replace("_", "/")), fact(isQueue ? "Layout" : "Names of", found.dialect), fact("Permits", found.permits), fact("Term", found.term), !isQueue && !found.barrier && found.kind !== "members" && fact("Hand-overs seen", found.past?.hand_overs),
    isQueue && [fact("Items", number(found.queue.depth)), fact("Oldest item", found.queue.oldest && h("span", {}, toTree(found.queue.oldest), ` since ${moment(found.queue.oldest_since_ms)} (${age(found.queue.oldest_since_ms)})`)), fact("Consumers that wait", number(found.queue.consumers))],
    found.barrier && [fact("State", standing(found)), fact("Round", found.barrier.round || null)]));
  const title = isQueue ? "Claims" : found.barrier || found.kind === "members" ? "Present" : found.term !== undefined ? "Leader" : found.held === 1 ? "Holder" : "Holders";
  parts.push(h("h3", {}, `${title} · ${number(found.held)}`));
  if (found.holders.length) {
    parts.push(h("div.list", {}, found.holders.map((holder) => party(holder, mayBreak && state.mayAct && h("span", {},
      h("button", { type: "button", onclick: () => act("Ask to release", { action: "ask", path: found.path, node: holder.node, czxid: Number(holder.czxid) }) }, "Ask to release"), " ",
      holder.token !== undefined && h("button.danger", { type: "button", onclick: () => act(`Break the hold with token ${holder.token}`, { action: "break", path: found.path, node: holder.node, czxid: Number(holder.czxid), token: Number(holder.token) }, true) }, "Break"))))));
    if (found.held > found.holders.length) parts.push(h("p.soft", {}, `and ${number(found.held - found.holders.length)} more`));
  } else parts.push(h("p.soft", {}, isQueue ? "Nobody works on an item that was read." : "Nobody."));
  if (found.waiting) {
    parts.push(h("h3", {}, `Waiting, in order · ${number(found.waiting)}`));
    parts.push(waiterList(found));
  }
  if (isQueue && (found.letters?.length || found.queue.dead)) parts.push(...letters(found, act));
  const hour = isQueue || found.barrier ? null : await lastHour(found.path);
  if (!isCurrent()) return null;
  if (hour) parts.push(...hour);
  else if (found.past?.past?.length) {
    parts.push(h("h3", {}, "Before"));
    parts.push(h("div.list", {}, [...found.past.past].reverse().map((past) => h("div", {}, h("div.grow", {}, past.process ?? past.node, h("div.soft", {}, `${past.from_ms ? moment(past.from_ms) : "before the survey"} – ${moment(past.until_ms)}`)), past.token !== null && h("span.soft.mono", {}, `token ${past.token}`)))));
  }
  return parts;
}

function waiterList(found) {
  const all = new Array(found.waiting);
  found.waiters.forEach((waiter, at) => { all[at] = { ...waiter, at }; });
  const asked = new Set([0]);
  const page = found.waiters.length || 1;
  const load = async (from) => {
    if (asked.has(from)) return;
    asked.add(from);
    const more = await ask("recipe", { path: found.path, from });
    more.waiters.forEach((waiter, at) => { all[from + at] = { ...waiter, at: from + at }; });
    grid.set([...all.keys()].map((at) => all[at] ?? { at }));
  };
  const cell = (row, read) => {
    if (row.node) return read(row);
    load(Math.floor(row.at / page) * page).catch(() => {});
    return "…";
  };
  const grid = new Grid({
    label: "Waiting, in order",
    columns: [
      { label: "#", width: "36px", right: true, sort: (row) => row.at, cell: (row) => row.at + 1 },
      { label: "Process", width: "minmax(120px, 1fr)", sort: (row) => row.at, cell: (row) => cell(row, who) },
      { label: "Mode", drop: 1, width: "70px", sort: (row) => row.at, cell: (row) => cell(row, (row) => row.mode) },
      { label: "Waits for", width: "96px", right: true, sort: (row) => row.at, cell: (row) => cell(row, (row) => age(row.since_ms)) },
    ],
    key: (row) => row.at,
    onopen: (row) => { if (row.session) location.hash = `#/sessions?at=${encodeURIComponent(row.session)}`; },
  });
  grid.element.classList.add("waiters");
  grid.element.style.height = `${Math.min(10, found.waiting + 1) * 30 + 2}px`;
  grid.set([...all.keys()].map((at) => all[at] ?? { at }));
  return grid.element;
}

function letters(found, act) {
  const button = (label, what, danger) => h(danger ? "button.danger" : "button", { type: "button", onclick: () => act(label, { ...what, path: found.path }, danger) }, label);
  return [
    h("h3", {}, `Dead letters · ${number(found.queue.dead)}`),
    h("div.list", {}, (found.letters ?? []).map((letter) => h("div", {}, h("div.grow", {}, h("div.mono", {}, letter.note?.text ?? letter.note?.id ?? letter.name), letter.note && h("div.bad", {}, letter.note.reason ?? "no reason noted"), h("div.soft", {}, `${letter.note ? `${letter.note.attempts} attempts · ` : ""}dead for ${age(letter.since_ms)}`)), state.mayAct && h("span", {}, button("Requeue", { action: "requeue", name: letter.name }), " ", button("Delete", { action: "discard", name: letter.name }, true))))),
    state.mayAct && h("div.buttons", {}, button("Delete all dead letters", { action: "purge" }, true)),
  ];
}

export function sessionDetail(row) {
  const places = (list, count) => h("div.list", {}, list.map((use) => h("div", {}, h("div.grow", {}, h("a.link.mono", { href: `#/${viewOf(use.path)}?at=${encodeURIComponent(use.path)}` }, use.path), h("div.soft", {}, `node since ${moment(use.since_ms)}`)))), count > list.length && h("div.soft", {}, `and ${number(count - list.length)} more`));
  return [
    h("dl", {}, fact("Process", row.process), fact("Client", row.client?.client), fact("Server", row.client?.server), fact("Timeout", row.client?.timeout_ms && `${row.client.timeout_ms / 1000} s`), fact("Last heard", row.client && (row.client.last_heard_ms ? `${age(row.client.last_heard_ms)} ago` : row.client.timeout_ms && `less than ${row.client.timeout_ms / 2000} s ago`)), fact("Nodes", number(row.nodes))),
    h("h3", {}, `Holds · ${number(row.held)}`), row.held ? places(row.holds, row.held) : h("p.soft", {}, "Nothing."),
    h("h3", {}, `Waits for · ${number(row.waiting)}`), row.waiting ? places(row.waits, row.waiting) : h("p.soft", {}, "Nothing."),
  ];
}

export function viewOf(at) {
  if (kind("election").has(at)) return "elections";
  if (kind("queue").has(at)) return "queues";
  if (kind("barrier").has(at) || kind("members").has(at) || kind("lock").get(at)?.kind === "semaphore") return "groups";
  return "locks";
}

// The wait-for graph.

export function graphView() {
  const cycles = [...kind("deadlock").values()];
  const parts = [];
  for (const cycle of cycles) {
    const out = cycle.steps[cycle.ask];
    parts.push(h("h2.bad", {}, `${cycle.steps.length} sessions wait for each other`));
    parts.push(h("p", {}, "Shortest way out: ask ", h("b", {}, out.blocker.process ?? `session ${out.blocker.session}`), " to release ", h("a.link.mono", { href: `#/${viewOf(out.lock)}?at=${encodeURIComponent(out.lock)}` }, out.lock), out.holds ? "." : ", where it waits."));
    parts.push(drawCycle(cycle));
  }
  // A candidate of an election waits for its end, not for a lock.
  const waited = [...kind("lock").values()].filter((row) => row.waiting).sort((one, other) => other.waiting - one.waiting);
  if (!waited.length && !cycles.length) return [empty("Nobody waits", "Each lock for which somebody waits stands here, with those who hold it and those who wait. Cycles come first, in red.")];
  if (waited.length) parts.push(h("h2", {}, "Who waits for whom"), h("div.cards", {}, waited.slice(0, MOST_GROUPS).map(group)));
  if (waited.length > MOST_GROUPS) parts.push(h("p.soft", {}, `The ${MOST_GROUPS} busiest of ${number(waited.length)} locks are shown; the others are among the locks.`));
  return parts;
}

const MOST_GROUPS = 60;

// One lock: those who hold it, above those who wait.
function group(row) {
  const isStuck = row.holders.some((one) => stuck().has(one.session));
  const line = (one, said) => h("div", {}, h("div.grow", {}, h("a.link", { href: `#/sessions?at=${encodeURIComponent(one.session)}` }, who(one))), h("span.soft", {}, said));
  const others = row.waiting - (row.next ? 1 : 0);
  return h(isStuck ? "section.card.bad" : "section.card", { "aria-label": row.path }, h("h3", {}, h("a.link.mono", { href: `#/${viewOf(row.path)}?at=${encodeURIComponent(row.path)}` }, row.path), h("span.soft", {}, row.waiting === 1 ? "1 waits" : `${number(row.waiting)} wait`)),
    h("div.list", {}, row.holders.slice(0, 3).map((one) => line(one, `holds, node ${age(one.since_ms)} old`)), row.held > 3 && h("div.soft", {}, `and ${number(row.held - 3)} more hold`), !row.held && h("div.soft", {}, "nobody holds it yet"),
      row.next && line(row.next, `waits ${age(row.next.since_ms)}`), others > 0 && h("div.soft", {}, `and ${number(others)} more wait`)));
}

function clip(value, most) {
  const letters = [...text(value)];
  return letters.length > most ? letters.slice(0, most - 1).join("") + "…" : letters.join("");
}

function box(x, y, label, session, classes) {
  const width = 176;
  const group = svg("g", { class: classes }, svg("title", {}, `${label} ${session}`), svg("rect", { class: "node", x: x - width / 2, y: y - 17, width, height: 34, rx: 7 }), svg("text", { x, y: y - 2, "text-anchor": "middle" }, clip(label, 26)), svg("text", { class: "lock", x, y: y + 11, "text-anchor": "middle" }, session));
  return group;
}

function arrow(from, to, label, classes, radius) {
  const [dx, dy] = [to[0] - from[0], to[1] - from[1]];
  const length = Math.hypot(dx, dy) || 1;
  const [ux, uy] = [dx / length, dy / length];
  const cut = radius ?? Math.min(Math.abs(92 / (ux || 1e-9)), Math.abs(20 / (uy || 1e-9)));
  const [x1, y1] = [from[0] + ux * cut, from[1] + uy * cut];
  const [x2, y2] = [to[0] - ux * (cut + 6), to[1] - uy * (cut + 6)];
  const head = `M${x2 + ux * 6},${y2 + uy * 6} L${x2 - uy * 4},${y2 + ux * 4} L${x2 + uy * 4},${y2 - ux * 4} Z`;
  return [svg("path", { class: `edge ${classes}`, d: `M${x1},${y1} L${x2},${y2}` }), svg("path", { class: `head ${classes}`, d: head }), label && svg("text", { class: "lock", x: (x1 + x2) / 2, y: (y1 + y2) / 2 - 5, "text-anchor": "middle" }, clip(label, 34))].filter(Boolean);
}

function drawCycle(cycle) {
  const count = cycle.steps.length;
  const radius = Math.max(105, count * 36);
  const [width, height] = [3 * radius + 200, (count === 3 ? 1.5 : 2) * radius + 60];
  const at = cycle.steps.map((_, nth) => {
    const angle = (2 * Math.PI * nth) / count - Math.PI / 2;
    return [width / 2 + radius * 1.5 * Math.cos(angle), radius + 28 + radius * Math.sin(angle)];
  });
  const asked = cycle.steps[cycle.ask].blocker.session;
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `Deadlock: ${cycle.steps.map((step) => `${step.waiter.process ?? step.waiter.session} waits for ${step.lock}`).join(", ")}` });
  cycle.steps.forEach((step, nth) => drawing.append(...arrow(at[nth], at[(nth + 1) % count], step.lock, "in-cycle")));
  cycle.steps.forEach((step, nth) => drawing.append(box(...at[nth], step.waiter.process ?? "session", step.waiter.session, `in-cycle${step.waiter.session === asked ? " asked" : ""}`)));
  return drawing;
}

// The servers.

// How many answer, and how many of these may fail.
function majority(servers) {
  const voters = servers.filter((row) => row.role !== "observer");
  const serving = voters.filter((row) => ["leader", "follower", "standalone"].includes(row.role)).length;
  const spare = serving - (Math.floor(voters.length / 2) + 1);
  if (voters.length === 1) return serving ? "One server, alone: nobody takes its place" : "The server does not serve";
  const head = `${number(serving)} of ${number(voters.length)} servers`;
  if (spare < 0) return h("span.bad", {}, `${head}, no majority: no lock is granted`);
  return `${head}, majority safe, can lose ${number(spare)}`;
}

export function ensembleView() {
  const servers = [...kind("server").values()];
  if (!servers.length) return [empty("No server was asked yet", "Servers are asked for their role by the words srvr, mntr and cons, at the addresses that the console was given.")];
  const zxid = (row) => (row.zxid ? BigInt(row.zxid) : null);
  const newest = servers.reduce((most, row) => (zxid(row) !== null && zxid(row) > most ? zxid(row) : most), 0n);
  const shown = [["zk_outstanding_requests", "Requests under way"], ["zk_znode_count", "Znodes"], ["zk_watch_count", "Watches"], ["zk_avg_latency", "Latency, average", "ms"], ["zk_p99_fsynctime", "Disk sync, p99", "ms"], ["zk_avg_fsynctime", "Disk sync, average", "ms"], ["zk_max_fsynctime", "Disk sync, longest", "ms"]];
  return [h("h2.headline", {}, majority(servers)), h("div.cards", {}, servers.map((row) => {
    const metric = ([name, label, unit]) => fact(label, row.metrics[name] && `${row.metrics[name]}${unit ? ` ${unit}` : ""}`);
    const own = Object.entries(row.metrics).filter(([name]) => name.startsWith("baton_") && /term|fsync|disk|lag/.test(name)).slice(0, 8);
    const role = row.role ?? (row.error ? "not reached" : "says nothing");
    return h(row.error ? "section.card.bad" : "section.card", { "aria-label": row.address }, h("h3", {}, h("span.mono", {}, row.address), h(row.error ? "span.bad" : row.role === "leader" ? "span.good" : "span.soft", {}, role)),
      row.error ? h("p.bad", {}, row.error) : h("dl", {}, fact("Version", row.version), fact("Newest change", row.zxid && h("span.mono", {}, row.zxid)), fact("Behind", zxid(row) === null ? null : zxid(row) === newest ? "nothing" : `${newest - zxid(row)} changes, at the moment of asking`), fact("Connections", row.connections), shown.map(metric), own.map(([name, value]) => fact(h("span.mono", {}, name), value))));
  }))];
}

// The tree.

export async function treeView(at, go, isCurrent) {
  const node = await ask("node", { path: at });
  if (!isCurrent()) return null;
  const crumbs = at === "/" ? [] : at.slice(1).split("/");
  const here = (nth) => "/" + crumbs.slice(0, nth + 1).join("/");
  const link = (to, label) => h("a", { class: "link mono", href: `#/tree?at=${encodeURIComponent(to)}` }, label);
  const list = h("div", { role: "list", "aria-label": "Children" });
  const add = (names) => list.append(...names.map((name) => h("div", { role: "listitem" }, h("a.mono", { href: `#/tree?at=${encodeURIComponent((at === "/" ? "" : at) + "/" + name)}` }, name))));
  add(node.children);
  let from = node.children.length;
  const more = h("button", { type: "button", onclick: async () => {
    const next = await ask("node", { path: at, from });
    add(next.children);
    from += next.children.length;
    more.hidden = from >= node.count || !next.children.length;
  } }, `More of ${number(node.count)}`);
  more.hidden = from >= node.count;
  if (!node.count) list.append(h("p.soft", { style: null }, "\u00a0\u00a0\u00a0\u00a0No children."));
  const stat = node.stat;
  return [
    h("p.crumbs", {}, link("/", "/"), crumbs.map((name, nth) => [" ", link(here(nth), name), nth < crumbs.length - 1 ? " /" : ""])),
    h("div.tree", {}, h("div", { tabindex: 0, role: "region", "aria-label": "Children" }, list, h("p", {}, more)), h("div", { tabindex: 0, role: "region", "aria-label": "Node" },
      h("dl", {}, fact("Created", `${moment(stat.ctime)}, zxid 0x${BigInt(stat.czxid).toString(16)}`), fact("Written", `${moment(stat.mtime)}, version ${stat.version}`), fact("Owner", stat.owner === "0x0" ? "none: it stays until it is deleted" : toSession(stat.owner)), fact("Children", `${number(node.count)}, changed ${number(stat.cversion)} times`), fact("Data", `${number(stat.data_length)} bytes`)),
      node.forbidden ? h("p.warn", {}, `Its ACL does not let this console's identity read it: ${node.forbidden}`) : null,
      node.data ? [h("h3", {}, node.binary ? "Data, in hexadecimal" : "Data"), h("pre.mono", { tabindex: 0 }, node.data), node.cut && h("p.soft", {}, "The rest is left out.")] : null)),
  ];
}

export function totals() {
  return { deadlocks: kind("deadlock").size, meta: rows.get("meta")?.get("") };
}
