// HTTP/1.1 with JSON on a unix socket. A connection is kept for the next request.

import { spawnSync } from "node:child_process";
import net from "node:net";
import path from "node:path";

import { Answer } from "./answer.js";
import { AgentSilent, BatonError, Lost, NotAcquired, Refused, Unavailable, Unknown } from "./errors.js";

/** Longest wait for an answer in milliseconds, beyond what the caller wants to wait. */
export const CALL_LIMIT = 60_000;
const MAX_MESSAGE = 16 << 20;
const MAX_TIMER = 2 ** 31 - 1;
/** Connections to one agent that are kept while nothing uses them. */
const MAX_IDLE = 8;
/** Longest idle time of a connection that is used again: the agent closes it after a minute. */
const MAX_IDLE_MS = 20_000;
const LAST_CHUNK = "0\r\n\r\n";
const KINDS = { not_acquired: NotAcquired, unavailable: Unavailable, lost: Lost, unknown: Unknown };

/** Idle connections by the agent's socket. The last one is used first. */
const idle = new Map();

/** Returns the URL of a znode path. */
export function route(kind, path, rest = "") {
  if (typeof path !== "string" || !path.startsWith("/") || path === "/") {
    throw new Refused(JSON.stringify(path), "not a znode path", "give one like /deploy");
  }
  try {
    return `/v1/${kind}${path.split("/").map(encodeURIComponent).join("/")}${rest}`;
  } catch {
    throw new Refused(JSON.stringify(path), "a part of it is not a character", "give whole characters");
  }
}

/** Returns a time in whole milliseconds, 0 only for 0. */
export function milliseconds(name, time) {
  if (time === undefined) return undefined;
  if (!(typeof time === "number" && time >= 0 && time < 1e15)) {
    throw new Refused(name, `${time} is not a time in milliseconds`, "give 0 or more");
  }
  return Math.ceil(time);
}

/** Returns the fields of data: text, or bytes in base64. */
export function payload(data = "") {
  if (typeof data === "string") return { data };
  if (data instanceof Uint8Array) return { data_base64: Buffer.from(data).toString("base64") };
  throw new Refused("data", `it is of type ${typeof data}`, "give a string or a Uint8Array");
}

function failure(answer, status) {
  // An agent of the version before has no such requests.
  if (status === 405) return new Refused("the agent", "it is older than this client", "restart it");
  const { thing = "", cause = "", next_step: nextStep = "" } = answer;
  // An agent does not remember what has ended: a guard that it does not know is a lost one.
  const kind = String(thing).startsWith("guard ") ? Lost : (KINDS[answer.code] ?? Refused);
  const error = new kind(thing, cause, nextStep);
  const silence = answer.unavailable_for_ms;
  if (error instanceof NotAcquired) error.heldBy = answer.held_by;
  else if (error instanceof Unavailable && typeof silence === "number") {
    error.since = new Date(Date.now() - silence);
  }
  return error;
}

/**
 * Sends a request, to the agent of a socket, or else to this user's or the machine's. Starts the
 * user's, which ends when nobody uses it, where neither answers.
 */
export async function open(socket, call) {
  const request = encode(call);
  if (socket !== undefined) return dial(socket, request);
  const machine = "/run/baton/agent.sock";
  const folder = process.geteuid() !== 0 && process.env.XDG_RUNTIME_DIR;
  const own = folder ? path.join(folder, "baton", "agent.sock") : machine;
  for (const agent of [own, machine]) {
    // A dead agent's is still there, and one may be another's.
    const link = await dial(agent, request).catch(() => undefined);
    if (link) return link;
  }
  // The error of the request names the socket where this fails.
  spawnSync("baton", ["agent", "--background"], { stdio: "ignore", timeout: CALL_LIMIT });
  return dial(own, request);
}

/** Returns the text of a request. The body of one that holds something stays open. */
function encode({ method, url, fields = {} }) {
  const holds = method === "PUT";
  let body;
  try {
    body = JSON.stringify(fields);
  } catch (error) {
    throw new Refused(url, error.message, "give values that JSON has");
  }
  const size = Buffer.byteLength(body);
  const rest = holds
    ? `transfer-encoding: chunked\r\n\r\n${(size + 1).toString(16)}\r\n${body}\n\r\n`
    : `content-length: ${size}\r\n\r\n${body}`;
  return { text: `${method} ${url} HTTP/1.1\r\nhost: baton\r\n${rest}`, holds };
}

async function dial(agent, request) {
  const links = idle.get(agent) ?? [];
  while (links.length) {
    const link = links.pop();
    // The agent has read nothing of a request that could not be written.
    if (await link.send(request)) return link;
  }
  const socket = net.connect(agent);
  await new Promise((resolve, reject) => {
    socket.on("connect", resolve);
    socket.on("error", (error) => reject(new AgentSilent(agent, error.message)));
  });
  const link = new Link(agent, socket);
  link.send(request);
  return link;
}

/** Connection with one request at a time. It must be closed or given back. */
class Link {
  #socket;
  #answer = new Answer();
  #found = [];
  #text = "";
  /** An error, or what is wrong with the answer. Each answer ends with one. */
  #error;
  #wake = () => {};
  /** Whether the body of the request has not ended: as long as it has not, the agent holds. */
  #isOpen = false;
  /** Whether another process may have the connection. */
  #isShared = false;
  #isGivenBack = false;
  #idleSince = 0;
  #timer;

  constructor(agent, socket) {
    this.agent = agent;
    this.#socket = socket;
    socket.on("data", (bytes) => this.#read(bytes));
    socket.on("error", (error) => this.#end(error.message));
    socket.on("close", () => this.#end("it has ended the connection"));
  }

  /** Sends a request. Returns whether the connection still takes one. */
  async send({ text, holds }) {
    const isTooOld = this.#isGivenBack && performance.now() - this.#idleSince > MAX_IDLE_MS;
    if (isTooOld) this.close();
    if (!this.#socket.writable) return false;
    [this.#answer, this.#found, this.#error] = [new Answer(), [], undefined];
    [this.#isOpen, this.#isGivenBack] = [holds, false];
    this.#socket.ref();
    return new Promise((resolve) => this.#socket.write(text, (error) => resolve(!error)));
  }

  #read(bytes) {
    try {
      this.#text += this.#answer.read(bytes);
    } catch (error) {
      this.#end(error.message);
      return this.close();
    }
    const { isOver, status } = this.#answer;
    const lines = this.#text.split("\n");
    // The last line of an answer may have no end.
    this.#text = isOver ? "" : lines.pop();
    if (this.#text.length > MAX_MESSAGE) this.#end("the answer is too large");
    for (const line of lines) this.#add(line, status);
    if (!isOver) return;
    this.#end(status >= 400 ? failure({ thing: `HTTP status ${status}` }) : "it has ended its answer");
    this.#keep();
  }

  #add(line, status) {
    if (line.trim() === "" || this.#error) return;
    try {
      const found = JSON.parse(line);
      if (found === null || typeof found !== "object" || Array.isArray(found)) {
        this.#end("the answer is not an object");
      } else if (status >= 400 || found.event === "error") {
        this.#end(failure(found, status));
      } else {
        this.#found.push(found);
        this.#wake();
      }
    } catch (error) {
      this.#end(error.message);
    }
  }

  #end(cause) {
    if (this.#error) return;
    clearTimeout(this.#timer);
    this.#error = cause;
    this.#wake();
    if (!this.#answer.isOver) this.close();
  }

  /** Waits for an object. Throws the error that the agent names, or `AgentSilent`. */
  async receive(limit, signal) {
    let timer;
    const abort = () => this.close();
    signal?.addEventListener("abort", abort);
    try {
      await new Promise((resolve) => {
        this.#wake = resolve;
        if (limit <= MAX_TIMER) timer = setTimeout(() => this.#end("it took too long"), limit);
        if (this.#found.length || this.#error || signal?.aborted) resolve();
      });
      signal?.throwIfAborted();
      if (this.#found.length) return this.#found.shift();
      throw this.#error instanceof BatonError ? this.#error : new AgentSilent(this.agent, this.#error);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
    }
  }

  /** Ends the body of the request, and so what it holds. The answer has so long to end too. */
  finish(limit) {
    this.#isOpen = false;
    this.#socket.write(LAST_CHUNK);
    if (!this.#error) this.#timer = setTimeout(() => this.#end("it took too long"), limit);
  }

  /** Returns the descriptor of the socket, for another process that keeps it open. */
  share() {
    this.#isShared = true;
    return this.#socket._handle.fd;
  }

  /** Lets the program end while the connection is open. */
  unref() {
    this.#socket.unref();
  }

  /** Keeps the connection for another request, where it can have one after this answer. */
  giveBack() {
    this.#isGivenBack = true;
    this.unref();
    // The agent reads the rest of a request that it has refused.
    if (this.#isOpen && this.#answer.isOver && this.#answer.status >= 400) {
      this.#isOpen = false;
      this.#socket.write(LAST_CHUNK);
    }
    if (this.#isOpen || this.#isShared || !this.#answer.isKept) this.close();
    this.#keep();
  }

  #keep() {
    if (!this.#isGivenBack || !this.#answer.isOver || !this.#socket.writable) return;
    if (!this.#answer.isKept) return this.close();
    this.#idleSince = performance.now();
    const links = idle.get(this.agent) ?? [];
    idle.set(this.agent, links);
    if (links.push(this) > MAX_IDLE) links.shift().close();
  }

  close() {
    this.#socket.destroy();
  }
}

/** Sends a request and returns its answer. */
export async function ask(agent, call, limit = CALL_LIMIT) {
  const link = await open(agent, call);
  try {
    return await link.receive(limit);
  } catch (error) {
    throw error instanceof AgentSilent && call.method !== "GET"
      ? new Unknown(`${call.method} ${call.url}`, error.cause, "read before you repeat it")
      : error;
  } finally {
    link.giveBack();
  }
}
