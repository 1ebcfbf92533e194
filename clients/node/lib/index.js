// Locks, elections, queues, membership and counters of Baton, through the agent of this machine.

import { Guard, Item, Membership, acquire } from "./held.js";
import { CALL_LIMIT, ask, milliseconds, open, payload, route } from "./http.js";

export { BatonError, Lost, Lost as LockLost, NotAcquired, Refused, Unavailable, Unknown } from "./errors.js";
export { Guard, Item, Membership };

/** Returns the fields that options of times and names give. */
function fieldsOf({ wait, sessionTimeout, lockDelay, visibility, delay, name }) {
  return {
    wait_ms: milliseconds("wait", wait),
    session_timeout_ms: milliseconds("sessionTimeout", sessionTimeout),
    lock_delay_ms: milliseconds("lockDelay", lockDelay),
    visibility_ms: milliseconds("visibility", visibility),
    delay_ms: milliseconds("delay", delay),
    name,
  };
}

/** Returns a request that holds something until its body ends. */
function holding(kind, path, fields) {
  return { method: "PUT", url: route(kind, path), fields };
}

export class Agent {
  constructor(socket) {
    this.socket = socket;
  }

  async lock(path, options = {}) {
    const { mode, slots } = options;
    const shared = { mode: mode ?? (slots === undefined ? undefined : "slot"), slots };
    const fields = { ...shared, ...fieldsOf(options) };
    return acquire(Guard, this.socket, path, holding("lock", path, fields), options);
  }

  async elect(path, options = {}) {
    const fields = { ...fieldsOf(options), ...payload(options.data) };
    return acquire(Guard, this.socket, path, holding("elect", path, fields), options);
  }

  async join(path, id, options = {}) {
    const fields = { id, ...fieldsOf(options), ...payload(options.data) };
    return acquire(Membership, this.socket, path, holding("member", path, fields), options);
  }

  async *members(path, { signal } = {}) {
    const link = await open(this.socket, { method: "GET", url: route("member", path) });
    try {
      for (;;) yield (await link.receive(Infinity, signal)).members;
    } finally {
      link.close();
    }
  }

  queue(path) {
    return new Queue(this, path);
  }

  counter(path) {
    return new Counter(this, path);
  }

  async hold(path, ttl, { token, ...options } = {}) {
    const fields = { ttl_ms: milliseconds("ttl", ttl), token, lock: fieldsOf(options) };
    const limit = (options.wait ?? Infinity) + CALL_LIMIT;
    return (await this._ask("POST", route("hold", path), fields, limit)).token;
  }

  async releaseHold(path, token) {
    await this._ask("DELETE", route("hold", path, `?token=${token}`));
  }

  async tokenIsCurrent(path, token) {
    return (await this._ask("GET", route("token", path, `/${token}`))).current;
  }

  async locks(path) {
    return this._ask("GET", route("locks?path=", path));
  }

  async health() {
    return this._ask("GET", "/v1/health");
  }

  async _ask(method, url, fields, limit = CALL_LIMIT) {
    return ask(this.socket, { method, url, fields }, limit);
  }
}

class Queue {
  #agent;
  #path;

  constructor(agent, path) {
    this.#agent = agent;
    this.#path = path;
  }

  async put(data, options = {}) {
    const { priority, id, maxAttempts: max_attempts } = options;
    const fields = { priority, id, max_attempts, ...fieldsOf(options), ...payload(data) };
    return (await this.#agent._ask("POST", route("queue", this.#path, "/put"), fields)).item;
  }

  async take(options = {}) {
    const url = route("queue", this.#path, "/take");
    const call = { method: "POST", url, fields: fieldsOf(options) };
    return acquire(Item, this.#agent.socket, this.#path, call, options);
  }
}

class Counter {
  #agent;
  #path;

  constructor(agent, path) {
    this.#agent = agent;
    this.#path = path;
  }

  async add(delta = 1) {
    return (await this.#agent._ask("POST", route("counter", this.#path, "/add"), { delta })).value;
  }

  async get() {
    return (await this.#agent._ask("GET", route("counter", this.#path))).value;
  }
}

/** The agent of the module's functions: this user's, or else the machine's. */
export const agent = new Agent();

function ofDefault(name) {
  return (...parameters) => agent[name](...parameters);
}

export const [lock, elect, join, members, queue, counter] =
  ["lock", "elect", "join", "members", "queue", "counter"].map(ofDefault);
export const [hold, releaseHold, tokenIsCurrent, locks, health] =
  ["hold", "releaseHold", "tokenIsCurrent", "locks", "health"].map(ofDefault);
