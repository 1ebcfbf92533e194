// The lease on this process's clocks, with a scripted agent and clocks that the tests set.

import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";

import { BatonError, Lost, Refused, Unavailable, Unknown } from "../lib/index.js";
import { clocks } from "../lib/held.js";
import { milliseconds } from "../lib/http.js";
import { END, HEAD, chunk, scripted, whole } from "./support.js";

/** A scripted agent. Its clock is `offset` ahead of this process's, its first message takes
 *  `delay`; all times are milliseconds. */
class Lab {
  now = { mono: 5e6, wall: 1.7e12, boot: 7e6 };
  offset = 0;
  delay = 0;
  healths = 0;
  bootId = "this";
  bootIdHere = "this";

  static async start(test, settings = {}) {
    const lab = Object.assign(new Lab(), settings);
    const before = { ...clocks };
    test.after(() => Object.assign(clocks, before));
    clocks.mono = () => lab.now.mono;
    clocks.wall = () => lab.now.wall;
    clocks.boot = () => lab.now.boot;
    clocks.grain = clocks.wallGrain = 0;
    clocks.bootId = () => lab.bootIdHere;
    lab.hasBoot = settings.hasBoot ?? true;
    if (!lab.hasBoot) clocks.boot = () => undefined;
    lab.agent = await scripted(test, (url, send) => {
      if (url === "/v1/health") {
        lab.healths += 1;
        return send(whole(lab.reading()));
      }
      if (url === END) return lab.atEnd(send);
      const held = { event: "held", guard: "g", token: 1, ...lab.reading() };
      lab.advance(lab.delay);
      lab.send = (event) => send(chunk(event));
      send(HEAD + chunk(held));
    });
    return lab;
  }

  advance(time, names = ["mono", "wall", "boot"]) {
    for (const name of names) this.now[name] += time;
  }

  /** The machine sleeps. */
  sleep(time) {
    this.advance(time, ["wall", "boot"]);
  }

  reading(left = 10_000) {
    const now_ns = (this.now.boot + this.offset) * 1e6;
    return { now_ns, boot_id: this.bootId, lease_until_ns: now_ns + left * 1e6 };
  }

  lock() {
    return this.agent.lock("/a");
  }

  /** Sends an event, and waits until the client has handled it. */
  async deliver(guard, event) {
    const handle = guard._handle.bind(guard);
    const handled = new Promise((resolve) => {
      guard._handle = async (event) => {
        await handle(event);
        resolve();
      };
    });
    this.send(event);
    await handled;
    guard._handle = handle;
  }

  /** The lease ends so long from now. */
  lasts(guard, left) {
    this.advance(left - 1);
    guard.check();
    this.advance(1);
    assert.throws(() => guard.check(), Lost);
  }
}

test("the same clock needs no allowance", async (t) => {
  const lab = await Lab.start(t);
  lab.lasts(await lab.lock(), 10_000);
  assert.equal(lab.healths, 0);
});

for (const settings of [
  { bootIdHere: "another" },
  { bootId: "", bootIdHere: "" },
  { hasBoot: false },
  { offset: -600_000 },
  { offset: 600_000 },
  { offset: -1 },
  { offset: 1 },
]) {
  test(`another clock loses one percent: ${JSON.stringify(settings)}`, async (t) => {
    const lab = await Lab.start(t, settings);
    lab.lasts(await lab.lock(), 9900);
  });
}

test("a late message is counted from before the request", async (t) => {
  for (const [bootIdHere, left] of [["this", 9950], ["another", 9850]]) {
    const lab = await Lab.start(t, { delay: 50, bootIdHere });
    lab.lasts(await lab.lock(), left);
  }
});

test("after a wait the clocks are compared again", async (t) => {
  for (const [bootIdHere, left] of [["this", 7000], ["another", 6930]]) {
    const lab = await Lab.start(t, { delay: 3000, bootIdHere });
    lab.lasts(await lab.lock(), left);
    assert.equal(lab.healths, 1);
  }
});

test("a lease that has ended when it arrives is not held", async (t) => {
  const lab = await Lab.start(t, { delay: 10_000 });
  await assert.rejects(lab.lock(), Lost);
});

test("a longer lease counts and an older one does not shorten it", async (t) => {
  const lab = await Lab.start(t);
  const guard = await lab.lock();
  lab.advance(3000);
  await lab.deliver(guard, { event: "lease", ...lab.reading() });
  await lab.deliver(guard, { event: "lease", ...lab.reading(2000) });
  lab.lasts(guard, 10_000);
});

test("another clock is read again with each lease", async (t) => {
  const lab = await Lab.start(t, { bootIdHere: "another" });
  const guard = await lab.lock();
  lab.advance(5000);
  await lab.deliver(guard, { event: "lease", ...lab.reading() });
  lab.lasts(guard, 9900);
});

test("a lease that has ended stays ended", async (t) => {
  const lab = await Lab.start(t);
  const guard = await lab.lock();
  const later = { event: "lease", ...lab.reading(100_000) };
  lab.advance(10_000);
  await lab.deliver(guard, later);
  lab.advance(-5000);
  assert.throws(() => guard.check(), Lost);
  assert.ok(guard.signal.reason instanceof Lost);
});

test("a machine that slept has no longer lease", async (t) => {
  for (const hasBoot of [true, false]) {
    const lab = await Lab.start(t, { hasBoot });
    const guard = await lab.lock();
    lab.sleep(9000);
    guard.check();
    lab.sleep(1000);
    assert.throws(() => guard.check(), Lost);
  }
});

test("a lease that comes after a sleep ends where it ends", async (t) => {
  const lab = await Lab.start(t);
  const guard = await lab.lock();
  lab.sleep(5000);
  await lab.deliver(guard, { event: "lease", ...lab.reading() });
  // Also for a machine whose wall clock is put back.
  lab.advance(-3_600_000, ["wall"]);
  lab.lasts(guard, 10_000);
});

test("a wall clock that is set ends no lease and extends none", async (t) => {
  for (const step of [3_600_000, -3_600_000]) {
    const lab = await Lab.start(t);
    const guard = await lab.lock();
    lab.advance(step, ["wall"]);
    guard.check();
    lab.lasts(guard, 10_000);
  }
});

test("a coarse clock costs the lease its grain", async (t) => {
  const lab = await Lab.start(t);
  clocks.grain = 10;
  clocks.boot = () => Math.floor(lab.now.boot / 10) * 10;
  lab.now.boot += 7;
  const guard = await lab.lock();
  lab.advance(10_000 - 18);
  guard.check();
  lab.advance(18);
  assert.throws(() => guard.check(), Lost);
});

test("a coarse wall clock costs a machine that slept its grain", async (t) => {
  const lab = await Lab.start(t, { hasBoot: false });
  clocks.wallGrain = 1;
  const guard = await lab.lock();
  lab.sleep(9898);
  guard.check();
  lab.sleep(1);
  assert.throws(() => guard.check(), Lost);
});

test("a stream that fails without a cause ends the guard", async (t) => {
  for (const event of [{ event: "error", thing: "/a" }, { event: "lost", reason: "" }]) {
    const lab = await Lab.start(t);
    const guard = await lab.lock();
    const lost = once(guard.signal, "abort");
    lab.send(event);
    await lost;
    assert.throws(() => guard.check(), Lost);
  }
});

test("a release ends the lease before it is sent", async (t) => {
  const lab = await Lab.start(t);
  const guard = await lab.lock();
  lab.atEnd = (send) => {
    assert.notEqual(guard.lost, undefined);
    send(chunk({ event: "unknown", next_step: "ask again" }) + END);
  };
  await assert.rejects(guard.release(), { name: "Unknown", nextStep: "ask again" });
  assert.equal(guard.signal.aborted, false);
});

test("a lost guard sends no write", async (t) => {
  const lab = await Lab.start(t);
  const guard = await lab.lock();
  const seen = [];
  guard._agent = await (await scripted(t, (url) => seen.push(url))).socket;
  lab.advance(10_000);
  await assert.rejects(guard.txn([]), Lost);
  await assert.rejects(guard.release(), Lost);
  assert.deepEqual(seen, []);
});

test("a time is in whole milliseconds and a short one is not none", () => {
  const times = [undefined, 0, 0.1, 500].map((time) => milliseconds("wait", time));
  assert.deepEqual(times, [undefined, 0, 1, 500]);
});

test("a change without an answer is unknown and a read is not", async (t) => {
  const agent = await scripted(t, (url, send) => send("", true));
  const hits = agent.counter("/hits");
  await assert.rejects(hits.add(), (error) => {
    return error instanceof Unknown && error.what === "POST /v1/counter/hits/add";
  });
  await assert.rejects(hits.get(), Unavailable);
});

test("servers that do not answer are unavailable since the agent's time", async (t) => {
  const agent = await scripted(t, (url, send) => {
    const refusal = { thing: "/a", code: "unavailable", unavailable_for_ms: 5000 };
    send(whole(refusal, "503 Service Unavailable"));
  });
  const before = Date.now() - 5000;
  for (const request of [() => agent.lock("/a"), () => agent.counter("/a").get()]) {
    await assert.rejects(request(), (error) => {
      return error instanceof Unavailable && error.since >= before && error.since < Date.now();
    });
  }
});

test("an answer is the same wherever it is cut", async (t) => {
  const data = Buffer.from(HEAD + chunk({ event: "x", members: ["ü\n"] }) + "0\r\n\r\n");
  for (const at of [...data.keys()].slice(1)) {
    const agent = await scripted(t, (url, send) => {
      send(data.subarray(0, at));
      setImmediate(() => send(data.subarray(at), true));
    });
    assert.deepEqual(await agent.members("/a").next(), { value: ["ü\n"], done: false });
  }
});

test("what is not an answer of an agent is unavailable", async (t) => {
  const ok = "HTTP/1.1 200 OK\r\n";
  for (const data of [
    "SSH-2.0-OpenSSH\r\n\r\n",
    `${ok}\r\n`,
    `${ok}no field\r\n\r\n`,
    `${ok}Content-Length: 1\r\n\r\n{`,
    `${ok}Content-Length: 2\r\n\r\n[]`,
    `${ok}Content-Length: 9\r\n\r\n{}`,
    `${ok}Content-Length: x\r\n\r\n`,
    `${HEAD}x\r\n`,
    "x".repeat(17 << 20),
    `${HEAD}2000000\r\n"${"x".repeat(17 << 20)}`,
  ]) {
    const agent = await scripted(t, (url, send) => send(data, true));
    await assert.rejects(agent.health(), Unavailable, data.slice(0, 60));
  }
  const empty = "HTTP/1.1 431 Too Large\r\nContent-Length: 0\r\n\r\n";
  const agent = await scripted(t, (url, send) => send(empty));
  await assert.rejects(agent.health(), Refused);
});

test("an error names the thing, the cause and the next step", () => {
  const error = new Refused("a", "b", "c");
  assert.ok(error instanceof BatonError);
  assert.equal(String(error), "Refused: a: b; c");
  assert.equal(error.why, "b");
});
