// What the console knows, kept current by server-sent events, and what is asked of it by path.
// Events are read with `fetch`, since an EventSource cannot send the header that shows who asks.

const KEY = "baton-console-token";

export const rows = new Map();
export const state = { connected: false, error: null, who: "", mayAct: false };
const listeners = new Set();
let due = false;

export function kind(name) {
  if (!rows.has(name)) rows.set(name, new Map());
  return rows.get(name);
}

export function onchange(listener) { listeners.add(listener); }

function changed() {
  if (due) return;
  due = true;
  setTimeout(() => {
    due = false;
    for (const listener of listeners) listener();
  }, 30);
}

// The link that the command prints has the token behind `#token=`: it is taken out of the address
// at once, so that it is in no copied link, and is not sent to any server by the browser itself.
export function takeToken() {
  const found = /[#?&]token=([^&]+)/.exec(location.hash);
  if (!found) return;
  sessionStorage.setItem(KEY, decodeURIComponent(found[1]));
  const rest = location.hash.replace(found[0], "");
  history.replaceState(null, "", location.pathname + (rest.startsWith("#/") ? rest : "#/locks"));
}

export function setToken(token) {
  if (token) sessionStorage.setItem(KEY, token);
  else sessionStorage.removeItem(KEY);
}

// What somebody has typed: USER:PASSWORD, a token, or x509 for the browser's certificate. A header
// takes bytes, so letters beyond ASCII go as those of UTF-8.
function headers() {
  const typed = sessionStorage.getItem(KEY);
  if (!typed) return {};
  const isWhole = /^(digest|bearer) /i.test(typed) || typed === "x509";
  const value = isWhole ? typed : typed.includes(":") ? `digest ${typed}` : `Bearer ${typed}`;
  return { Authorization: String.fromCharCode(...new TextEncoder().encode(value)) };
}

export async function ask(path, parameters) {
  const query = new URLSearchParams(parameters ?? {});
  const answer = await fetch(`/console/api/${path}?${query}`, { headers: headers() });
  return read(answer);
}

export async function act(what, confirmed) {
  const body = JSON.stringify({ what, confirmed });
  const answer = await fetch("/console/api/act", { method: "POST", headers: { ...headers(), "Content-Type": "application/json" }, body });
  return read(answer);
}

async function read(answer) {
  const type = answer.headers.get("Content-Type") ?? "";
  const body = type.startsWith("application/json") ? parse(await answer.text()) : { error: await answer.text() };
  if (!answer.ok) throw Object.assign(new Error(body.error || `the console answered ${answer.status}`), { status: answer.status });
  return body;
}

// Tokens and zxids have 64 bits: numbers that JavaScript would round stay text.
export function parse(json) {
  return JSON.parse(json.replace(/("(?:[^"\\]|\\.)*")|(-?\d{16,})(?![\d.eE])/g, (all, quoted, long) => (quoted ? quoted : `"${long}"`)));
}

function take(message) {
  if (message.reset) rows.clear();
  for (const [name, all] of Object.entries(message.set ?? {})) {
    for (const [id, row] of Object.entries(all)) kind(name).set(id, row);
  }
  for (const [name, ids] of Object.entries(message.gone ?? {})) {
    for (const id of ids) kind(name).delete(id);
  }
}

// Follows the events for as long as the page is open.
export async function follow(onwho) {
  let pause = 1000;
  for (;;) {
    try {
      const known = await ask("who");
      Object.assign(state, { who: known.who, mayAct: known.may_act, error: null });
      onwho(known);
      const answer = await fetch("/console/api/events", { headers: headers() });
      if (!answer.ok) await read(answer);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const parts = (rest + value).split("\n\n");
        rest = parts.pop();
        for (const part of parts) {
          if (!part.startsWith("data: ")) continue;
          take(parse(part.slice(6)));
          // What servers say of themselves comes at once, what is on the tree with the first survey.
          state.connected = kind("meta").size > 0;
          pause = 1000;
        }
        changed();
      }
    } catch (error) {
      state.error = error;
    }
    state.connected = false;
    changed();
    await new Promise((resolve) => setTimeout(resolve, state.error ? pause : 200));
    pause = Math.min(pause * 2, 10000);
  }
}
