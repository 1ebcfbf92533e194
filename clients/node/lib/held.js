// What is held through the agent, and its lease on this process's own clocks.
//
// A check reads two clocks, so that no message has to arrive for a lease to end.

import { spawn } from "node:child_process";
import { openSync, readFileSync, readSync } from "node:fs";

import { AgentSilent, Lost, Unknown } from "./errors.js";
import { CALL_LIMIT, ask, milliseconds, open, payload, route } from "./http.js";

const NEXT_STEP = "stop what it protects, then acquire it again";
const RELEASED = "it was released";
const LEASE_ENDED = "the lease ended: no server answered in time, or this process was paused";
const ENDS = ["lost", "released", "settled", "unknown"];
const FOREVER = { mono: Infinity, wall: Infinity, boot: Infinity, hasBoot: false };

const uptime = Buffer.alloc(64);
let uptimeFile, bootId;

/** The clocks of leases, in milliseconds. An object, so that tests can set them. */
export const clocks = {
  /** A monotonic clock, which may stand still while the machine sleeps. */
  mono: () => performance.now(),
  /** The wall clock, which goes on then, but may be set; rounded down to `wallGrain`. */
  wall: () => Date.now(),
  wallGrain: 1,
  /** A clock that goes on then and cannot be set, rounded down to `grain`; undefined if none. */
  boot() {
    try {
      uptimeFile ??= openSync("/proc/uptime");
      const size = readSync(uptimeFile, uptime, 0, uptime.length, 0);
      return Math.round(parseFloat(uptime.latin1Slice(0, size)) * 1000);
    } catch {
      return undefined;
    }
  },
  grain: 10,
  bootId() {
    try {
      return (bootId ??= readFileSync("/proc/sys/kernel/random/boot_id", "latin1").trim());
    } catch {
      return "";
    }
  },
};

/** Returns a reading of all clocks. */
function readClocks() {
  const [mono, wall] = [clocks.mono(), clocks.wall()];
  const boot = clocks.boot();
  return { mono, wall, boot: boot ?? mono, hasBoot: boot !== undefined };
}

function plus({ mono, wall, boot, hasBoot }, left) {
  return { mono: mono + left, wall: wall + left, boot: boot + left, hasBoot };
}

/** A machine that has slept has moved its wall clock on. */
function isAhead(end) {
  if (end === undefined || clocks.mono() >= end.mono) return false;
  return clocks.wall() + clocks.wallGrain < end.wall;
}

/** Returns the same end by the clocks of now: the wall clock may have been set, and the monotonic
 *  one may have stood still. Returns undefined once the end has come. */
function renewed(end) {
  const now = readClocks();
  if (!end?.hasBoot || !now.hasBoot || now.mono >= end.mono) return undefined;
  const left = end.boot - now.boot - clocks.grain;
  return left > 0 ? { ...plus(now, left), boot: end.boot } : undefined;
}

/** A reading of the agent's clock, which it made after this process had read `sent`.
 *
 *  What ends so long after the agent's reading ends no earlier than so long after `sent`, however
 *  late a message is. Two clocks of one boot run at one rate, others within 1 %. */
class Anchor {
  constructor(sent, answer) {
    const received = readClocks();
    const [own, agent] = [clocks.bootId(), answer.now_ns / 1e6];
    this.sent = sent;
    this.agentNs = answer.now_ns;
    this.bootId = answer.boot_id;
    this.isWide = received.mono - sent.mono > 100;
    this.isSameClock =
      own !== "" && own === this.bootId && sent.hasBoot &&
      sent.boot <= agent && agent <= received.boot + clocks.grain;
  }

  static async read(agent, limit) {
    const sent = readClocks();
    return new Anchor(sent, await ask(agent, { method: "GET", url: "/v1/health" }, limit));
  }

  /** Returns the end of a lease on these clocks, never too late; undefined if it has come. */
  end(leaseUntilNs) {
    const left = (leaseUntilNs - this.agentNs) / 1e6;
    const end = plus(this.sent, Math.floor(this.isSameClock ? left : left * 0.99));
    // The machine may have slept since the anchor was read.
    return end.hasBoot ? renewed(end) : end;
  }
}

/** State of something that is held as long as its response is open. */
export class Held {
  #end = FOREVER;
  #anchor;
  #reason;
  #abort = new AbortController();
  #timer;
  /** The last event, or the error that ends the answer. */
  #last;

  constructor(agent, path, link) {
    this.path = path;
    this._agent = agent;
    this._link = link;
  }

  /** Aborted when it is lost, with a `Lost` as its reason; not when it is released. */
  get signal() {
    return this.#abort.signal;
  }

  /** The reason why it is held no longer, if so. */
  get lost() {
    if (this.#reason === undefined && !isAhead(this.#end)) {
      this.#end = renewed(this.#end);
      // A lease that has ended stays ended, also if an older message brings a later end.
      if (this.#end === undefined) this.#endFor(LEASE_ENDED);
    }
    return this.#reason === undefined ? undefined : new Lost(this.path, this.#reason, NEXT_STEP);
  }

  /** Throws `Lost` unless it is held now, without waiting for anything. */
  check() {
    if (isAhead(this.#end)) return;
    const lost = this.lost;
    if (lost) throw lost;
  }

  #endFor(reason) {
    if (this.#reason !== undefined) return;
    this.#reason = reason;
    this.#end = undefined;
    clearTimeout(this.#timer);
    if (reason !== RELEASED) {
      this._link.close();
      this.#abort.abort(this.lost);
    }
  }

  /** Notices the end of the lease while no message comes. */
  #watch() {
    clearTimeout(this.#timer);
    if (this.#reason !== undefined || this.#end === FOREVER) return;
    const left = Math.min(Math.max(this.#end.mono - clocks.mono(), 1), 2 ** 31 - 1);
    this.#timer = setTimeout(() => this.lost ?? this.#watch(), left).unref();
  }

  async _start(sent, event) {
    if (event.lease_until_ns !== undefined) {
      this.#anchor = new Anchor(sent, event);
      // It has waited: this reading would cost the lease as much.
      if (this.#anchor.isWide) this.#anchor = await Anchor.read(this._agent, CALL_LIMIT);
      this.#end = this.#anchor.end(event.lease_until_ns);
      this.check();
    }
    this._link.unref();
    this.#watch();
    this.#last = this.#read();
    this.#last.then(
      (event) => this.#endFor(event.reason || "another request ended it"),
      (error) => this.#endFor(error.cause || String(error)),
    );
  }

  async #read() {
    for (;;) {
      const event = await this._link.receive(Infinity);
      if (ENDS.includes(event.event)) return event;
      await this._handle(event);
    }
  }

  async _handle(event) {
    if (event.event === "lease") {
      if (!this.#anchor.isSameClock) {
        // The rates of two clocks differ; an old reading would cost more and more.
        this.#anchor = await Anchor.read(this._agent, CALL_LIMIT).catch(() => this.#anchor);
      }
      const end = this.#anchor.end(event.lease_until_ns);
      if (this.lost || !end || event.boot_id !== this.#anchor.bootId) return;
      if (end.boot > this.#end.boot) this.#end = end;
      this.#watch();
    }
  }

  /** Ends it by a request, or else by the end of its own. A second call does nothing. */
  async _finish(call) {
    const lost = this.lost;
    if (this.#reason === RELEASED) return;
    if (lost) throw lost;
    // Before the end: no check is true once that is on its way.
    this.#endFor(RELEASED);
    try {
      await (call ? ask(this._agent, call) : this.#release());
    } finally {
      this._link.giveBack();
    }
  }

  async #release() {
    const thing = `release of ${this.path}`;
    this._link.finish(CALL_LIMIT);
    const { event, reason, next_step: next } = await this.#last.catch((error) => {
      throw error instanceof AgentSilent ? new Unknown(thing, error.cause, "read before you repeat it") : error;
    });
    if (event === "lost") throw new Lost(this.path, reason, NEXT_STEP);
    if (event === "unknown") throw new Unknown(thing, "no server confirms it", next);
  }
}

/** Guard of a lock or of a term of an election. */
export class Guard extends Held {
  constructor(agent, path, link, event) {
    super(agent, path, link);
    this.id = event.guard;
    this.token = event.token;
    this.term = event.term;
    this.releaseRequested = false;
  }

  async _handle(event) {
    if (event.event === "release_requested") this.releaseRequested = true;
    await super._handle(event);
  }

  async txn(writes) {
    this.check();
    const list = writes.map(({ data, ...write }) => ({
      ...write,
      ...(data === undefined ? {} : payload(data)),
    }));
    const url = `/v1/guard/${this.id}/txn`;
    await ask(this._agent, { method: "POST", url, fields: { writes: list } });
  }

  async release() {
    await this._finish();
  }

  async [Symbol.asyncDispose]() {
    await this.release();
  }

  async run(work, options) {
    this.check();
    try {
      return await (typeof work === "function" ? work(this.signal) : this.#command(work, options));
    } finally {
      this.check();
    }
  }

  /** Runs a command in a process group of its own, which it kills at the loss. */
  #command([file, ...argv], { stdio = "inherit", ...options } = {}) {
    const three = Array.isArray(stdio) ? stdio : [stdio, stdio, stdio];
    // If this process dies first, the command keeps the lock.
    const all = [...three, this._link.share()];
    const child = spawn(file, argv, { ...options, stdio: all, detached: true });
    const kill = () => {
      try {
        process.kill(-child.pid, "SIGKILL");
      } catch {
        // Nobody is left of it.
      }
    };
    return new Promise((resolve, reject) => {
      child.once("error", reject);
      this.signal.addEventListener("abort", kill);
      child.once("exit", (code, signal) => {
        this.signal.removeEventListener("abort", kill);
        kill();
        resolve(code ?? signal);
      });
    });
  }
}

/** Claim on an item of a work queue. */
export class Item extends Held {
  #claim;

  constructor(agent, path, link, event) {
    super(agent, path, link);
    this.id = event.item;
    this.token = event.token;
    this.attempt = event.attempt;
    this.data = Buffer.from(event.data_base64, "base64");
    this.#claim = event.claim;
  }

  #call(action, fields) {
    const url = route("queue", this.path, `/${action}`);
    return { method: "POST", url, fields: { claim: this.#claim, ...fields } };
  }

  async ack() {
    await this._finish(this.#call("ack"));
  }

  async nack(reason = "", delay = undefined) {
    const fields = { reason, delay_ms: milliseconds("delay", delay) };
    await this._finish(this.#call("nack", fields));
  }

  async extend() {
    this.check();
    await ask(this._agent, this.#call("extend"));
  }

  async [Symbol.asyncDispose]() {
    await this.nack("the consumer has not acknowledged it");
  }
}

/** Membership. It has no lease: its loss may be noticed late. */
export class Membership extends Held {
  async leave() {
    await this._finish();
  }

  async [Symbol.asyncDispose]() {
    await this.leave();
  }
}

/** Acquires what a call describes. */
export async function acquire(type, agent, path, call, { onWait, signal, wait = Infinity }) {
  signal?.throwIfAborted();
  const sent = readClocks();
  let link;
  try {
    link = await open(agent, call);
    let event;
    do {
      event = await link.receive(wait + CALL_LIMIT, signal);
      if (event.event === "waiting") onWait?.({ place: event.place, heldBy: event.held_by });
    } while (event.event === "waiting");
    // What is held stays with the agent that has given it.
    const held = new type(link.agent, path, link, event);
    await held._start(sent, event);
    return held;
  } catch (error) {
    link?.giveBack();
    throw error;
  }
}
