// HTTP/1.1 with JSON on a unix socket, one request a connection.

import { spawnSync } from "node:child_process";
import http from "node:http";
import net from "node:net";
import path from "node:path";

import { AgentSilent, BatonError, Lost, NotAcquired, Refused, Unavailable, Unknown } from "./errors.js";

/** Longest wait for an answer in milliseconds, beyond what the caller wants to wait. */
export const CALL_LIMIT = 60_000;
const MAX_MESSAGE = 16 << 20;
const MAX_TIMER = 2 ** 31 - 1;
const KINDS = { not_acquired: NotAcquired, unavailable: Unavailable, lost: Lost, unknown: Unknown };

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

function failure(answer) {
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
export async function open(socket, { method, url, fields = {} }) {
  const request = { method, url, body: encode(url, fields) };
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

function encode(url, fields) {
  try {
    return JSON.stringify(fields);
  } catch (error) {
    throw new Refused(url, error.message, "give values that JSON has");
  }
}

async function dial(agent, request) {
  const socket = net.connect(agent);
  await new Promise((resolve, reject) => {
    socket.on("connect", resolve);
    socket.on("error", (error) => reject(new AgentSilent(agent, error.message)));
  });
  return new Link(agent, socket, request);
}

/** Connection with one request. It must be closed. */
class Link {
  #found = [];
  #error;
  #wake = () => {};
  #text = "";

  constructor(agent, socket, { method, url, body }) {
    this.agent = agent;
    const headers = { "content-length": Buffer.byteLength(body) };
    this.request = http.request({ createConnection: () => socket, path: url, method, headers });
    this.request.on("response", (response) => this.#read(response));
    this.request.on("error", (error) => this.#end(error.message));
    this.request.end(body);
  }

  #read(response) {
    const isRefusal = response.statusCode >= 400;
    response.setEncoding("utf8");
    response.on("data", (part) => {
      const [first, ...lines] = part.split("\n");
      lines.unshift(this.#text + first);
      this.#text = lines.pop();
      if (this.#text.length > MAX_MESSAGE) this.#end("the answer is too large");
      lines.forEach((line) => this.#add(line, isRefusal));
    });
    response.on("end", () => {
      this.#add(this.#text, isRefusal);
      if (isRefusal) this.#end(failure({ thing: `HTTP status ${response.statusCode}` }));
      this.#end("the agent has ended the connection");
    });
    response.on("error", (error) => this.#end(error.message));
    response.on("close", () => this.#end("the connection has ended"));
  }

  #add(line, isRefusal) {
    if (line.trim() === "" || this.#error) return;
    try {
      const found = JSON.parse(line);
      if (found === null || typeof found !== "object" || Array.isArray(found)) {
        this.#end("the answer is not an object");
      } else if (isRefusal || found.event === "error") {
        this.#end(failure(found));
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
    const isNamed = cause instanceof BatonError;
    this.#error = isNamed ? cause : new AgentSilent(this.agent, cause);
    this.#wake();
    this.close();
  }

  /** Waits for an object. Throws the error that the agent names, or `AgentSilent`. */
  async receive(limit, signal) {
    let timer;
    const abort = () => this.#wake();
    signal?.addEventListener("abort", abort);
    try {
      await new Promise((resolve) => {
        this.#wake = resolve;
        if (limit <= MAX_TIMER) timer = setTimeout(resolve, limit);
        if (this.#found.length || this.#error || signal?.aborted) resolve();
      });
      signal?.throwIfAborted();
      if (this.#found.length) return this.#found.shift();
      throw this.#error ?? new AgentSilent(this.agent, "it took too long");
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
    }
  }

  /** Lets the program end while the connection is open. */
  unref() {
    this.request.socket?.unref();
  }

  close() {
    this.request.destroy();
  }
}

/** Sends a request and returns its answer. */
export async function ask(agent, call, limit = CALL_LIMIT) {
  const link = await open(agent, call);
  try {
    return await link.receive(limit);
  } catch (error) {
    if (!(error instanceof AgentSilent) || call.method === "GET") throw error;
    throw new Unknown(`${call.method} ${call.url}`, error.cause, "read before you repeat it");
  } finally {
    link.close();
  }
}
