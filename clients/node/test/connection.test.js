// Connections to a scripted agent: which are used again, and what a release by the end of a body is.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Lost, NotAcquired, Refused, Unavailable, Unknown } from "../lib/index.js";
import { END, HEAD, chunk, scripted, whole } from "./support.js";

const HELD = HEAD + chunk({ event: "held", guard: "g", token: 1 });
const RELEASED = chunk({ event: "released" }) + END;

/** An agent that grants each lock, and answers other requests with `{}`. */
function granting(t, atEnd = (send) => send(RELEASED)) {
  return scripted(t, (url, send) => {
    if (url === END) atEnd(send);
    else send(url.startsWith("/v1/lock") ? HELD : whole({}));
  });
}

test("locks and other requests one after the other use one connection", async (t) => {
  const agent = await granting(t);
  for (let count = 0; count < 3; count++) {
    const guard = await agent.lock("/a");
    await guard.release();
    await agent.health();
  }
  assert.equal(agent.connections.length, 1);
});

test("guards that are held at a time have a connection each", async (t) => {
  const agent = await granting(t);
  const guards = await Promise.all([1, 2, 3].map(() => agent.lock("/a")));
  assert.equal(agent.connections.length, 3);
  await Promise.all(guards.map((guard) => guard.release()));
  await Promise.all([1, 2, 3].map(() => agent.lock("/a")));
  assert.equal(agent.connections.length, 3);
});

test("few idle connections are kept", async (t) => {
  const agent = await granting(t);
  const all = Array.from({ length: 20 }, () => agent.lock("/a"));
  await Promise.all(all.map(async (guard) => (await guard).release()));
  await Promise.all(Array.from({ length: 20 }, () => agent.lock("/a")));
  assert.equal(agent.connections.length, 20 + 12);
});

test("a connection that the agent has closed is not used again", async (t) => {
  const agent = await granting(t);
  await (await agent.lock("/a")).release();
  // The client cannot have noticed it before it writes.
  agent.connections[0].destroy();
  await (await agent.lock("/a")).release();
  await agent.counter("/a").add();
  assert.equal(agent.connections.length, 2);
});

test("a connection that was idle for long is not used again", async (t) => {
  const agent = await granting(t);
  await (await agent.lock("/a")).release();
  const now = performance.now();
  t.mock.method(performance, "now", () => now + 60_000);
  await agent.lock("/a");
  assert.equal(agent.connections.length, 2);
});

test("a connection with more than its answer is not used again", async (t) => {
  for (const more of ["x", RELEASED, whole({})]) {
    const agent = await granting(t, (send) => send(RELEASED + more));
    await (await agent.lock("/a")).release();
    await agent.lock("/a");
    assert.equal(agent.connections.length, 2);
  }
});

test("a connection that the agent says it closes is not used again", async (t) => {
  const agent = await scripted(t, (url, send) => {
    send(whole({}).replace("\r\n", "\r\nConnection: close\r\n"));
  });
  await agent.health();
  await agent.health();
  assert.equal(agent.connections.length, 2);
});

test("a refused request ends its body and leaves the connection free", async (t) => {
  const urls = [];
  const agent = await scripted(t, (url, send) => {
    urls.push(url);
    if (url !== END) send(whole({ thing: "/a", code: "not_acquired" }, "409 Conflict"));
  });
  await assert.rejects(agent.lock("/a", { wait: 0 }), NotAcquired);
  await assert.rejects(agent.lock("/a", { wait: 0 }), NotAcquired);
  assert.equal(agent.connections.length, 1);
  assert.deepEqual(urls.slice(0, 3), ["/v1/lock/a", END, "/v1/lock/a"]);
});

test("an agent of the version before is named as such", async (t) => {
  const agent = await scripted(t, (url, send) => {
    send(whole({ thing: url, code: "refused" }, "405 Method Not Allowed"));
  });
  await assert.rejects(agent.lock("/a"), (error) => {
    return error instanceof Refused && /older than this client/.test(error.message);
  });
});

test("a command that a guard has run may have the connection still", async (t) => {
  const agent = await granting(t);
  const guard = await agent.lock("/a");
  assert.equal(await guard.run(["true"]), 0);
  await guard.release();
  await agent.lock("/a");
  assert.equal(agent.connections.length, 2);
});

test("a release that is not answered is unknown, and one of a lost lock is lost", async (t) => {
  for (const [answer, kind] of [
    ["", Unknown],
    [chunk({ event: "release_requested" }), Unknown],
    [END, Unknown],
    [chunk({ event: "unknown", next_step: "wait" }) + END, Unknown],
    [chunk({ event: "lost", reason: "session expired" }) + END, Lost],
    [chunk({ event: "error", thing: "/a", code: "refused" }) + END, Refused],
  ]) {
    const agent = await granting(t, (send) => send(answer, true));
    const guard = await agent.lock("/a");
    await assert.rejects(guard.release(), kind, answer);
    assert.equal(guard.signal.aborted, false);
    await guard.release();
  }
});

test("an event before the answer to a release is passed over", async (t) => {
  const agent = await granting(t, (send) => {
    for (const part of chunk({ event: "release_requested" }) + RELEASED) send(part);
  });
  const guard = await agent.lock("/a");
  await guard.release();
  assert.equal(guard.releaseRequested, true);
});

test("an answer that ends without a grant is unavailable", async (t) => {
  const agent = await scripted(t, (url, send) => send(HEAD + END));
  await assert.rejects(agent.lock("/a"), Unavailable);
});
