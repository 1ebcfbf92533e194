// Locks and the rest through an agent: one holder at a time, deaths, losses, guarded writes.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";

import { Agent, Lost, NotAcquired, Refused, Unavailable } from "../lib/index.js";
import { AgentProcess, COMMAND, ROOT, program } from "./support.js";

const skip = COMMAND ? false : "NOT CHECKED: BATON names no command baton";
if (skip) console.error(skip);

/** Waits for a lock; resolves once it waits, with the acquisition's promise in `guard`. */
async function waiter(agent, path, options) {
  let waits;
  const waiting = new Promise((resolve) => (waits = resolve));
  const guard = agent.lock(path, { ...options, onWait: waits });
  guard.catch(() => {});
  return { guard, position: await waiting };
}

describe("an agent", { skip }, () => {
  let own, agent;
  before(async () => {
    own = await AgentProcess.start();
    agent = own.agent;
  });
  after(() => own.stop());

  const isTaken = (path, options) =>
    assert.rejects(agent.lock(path, { ...options, wait: 0 }), NotAcquired);

  test("one holds at a time and tokens rise", async () => {
    const first = await agent.lock("/deploy", { name: "first" });
    first.check();
    await assert.rejects(agent.lock("/deploy", { wait: 0 }), { heldBy: "first" });
    await assert.rejects(agent.lock("/deploy", { wait: 50 }), NotAcquired);
    assert.equal((await agent.locks("/deploy")).holders[0].token, first.token);
    await first.release();
    await first.release();
    const second = await agent.lock("/deploy");
    assert.ok(second.token > first.token);
    assert.throws(() => first.check(), Lost);
    await second[Symbol.asyncDispose]();
    assert.deepEqual((await agent.locks("/deploy")).holders, []);
  });

  test("a waiter is notified of its place and is next", async () => {
    const guard = await agent.lock("/place");
    const next = await waiter(agent, "/place");
    assert.equal(next.position.place, 1);
    await guard.release();
    await (await next.guard).release();
  });

  test("an aborted wait leaves no waiter", async () => {
    const guard = await agent.lock("/abort");
    const controller = new AbortController();
    const next = await waiter(agent, "/abort", { signal: controller.signal });
    controller.abort();
    await assert.rejects(next.guard, { name: "AbortError" });
    await assert.rejects(agent.lock("/abort", { signal: controller.signal }), { name: "AbortError" });
    const last = await waiter(agent, "/abort");
    await guard.release();
    await (await last.guard).release();
  });

  test("the death of a program passes its lock on without the session timeout", async () => {
    const text = `console.log((await agent.lock("/death", { sessionTimeout: 40000 })).token);
      process.stdin.resume();`;
    const [holder, token] = await program(agent.socket, text);
    // All guards share one session, which lives on: nothing but the closed socket frees the lock.
    const next = await waiter(agent, "/death", { sessionTimeout: 40_000 });
    holder.kill("SIGKILL");
    const guard = await next.guard;
    assert.ok(guard.token > Number(token));
    await guard.release();
  });

  test("a program that holds may end without a release", async () => {
    const [holder] = await program(agent.socket, `await agent.lock("/end"); console.log();`);
    const [code] = await once(holder, "exit");
    assert.equal(code, 0);
    await (await agent.lock("/end")).release();
  });

  test("a guarded write applies while the lock is held and not after", async () => {
    const guard = await agent.lock("/txn");
    await guard.txn([{ op: "create", path: "/state", data: new Uint8Array([0, 255]) }]);
    await assert.rejects(guard.txn([{ op: "create", path: "/state" }]), Refused);
    await guard.txn([{ op: "set", path: "/state", data: "text", version: 0 }]);
    assert.ok(await own.endFromOutside(guard));
    // The agent refuses it, whatever this process knows by now.
    guard.check = () => {};
    await assert.rejects(guard.txn([{ op: "set", path: "/state", data: "late" }]), Lost);
  });

  test("a loss aborts the signal with its reason", async () => {
    const guard = await agent.lock("/lost");
    assert.ok(await own.endFromOutside(guard));
    if (!guard.signal.aborted) await once(guard.signal, "abort");
    assert.equal(guard.signal.reason.reason, "another request ended it");
    assert.throws(() => guard.check(), Lost);
    await assert.rejects(guard[Symbol.asyncDispose](), Lost);
  });

  test("work gets the signal, and its result counts only if the lock is held", async () => {
    const guard = await agent.lock("/work");
    assert.equal(await guard.run(async () => 7), 7);
    await assert.rejects(guard.run(async () => JSON.parse("{")), SyntaxError);
    const work = guard.run(async (signal) => {
      await own.endFromOutside(guard);
      if (!signal.aborted) await once(signal, "abort");
    });
    await assert.rejects(work, Lost);
    await assert.rejects(guard.run(async () => 7), Lost);
  });

  test("a command is killed with its group at the loss", async () => {
    const guard = await agent.lock("/killed");
    const read = path.join(own.folder, "fifo");
    await promisify(execFile)("mkfifo", [read]);
    const output = fs.createReadStream(read);
    const end = once(output, "end");
    const argv = ["sh", "-c", `sleep 1000 >${read} & echo >${read}; wait`];
    const work = guard.run(argv, { stdio: "ignore" });
    await once(output, "data");
    await own.endFromOutside(guard);
    await assert.rejects(work, Lost);
    // The end of the file: no process of the group has the pipe any more.
    await end;
  });

  test("a command gives its exit code and leaves the lock held", async () => {
    const guard = await agent.lock("/run");
    assert.equal(await guard.run(["sh", "-c", "exit 7"]), 7);
    assert.equal(await guard.run(["sh", "-c", "kill -9 $$"]), "SIGKILL");
    await assert.rejects(guard.run(["/nonexistent"]), { code: "ENOENT" });
    guard.check();
    await guard.release();
  });

  test("a command keeps the lock of a program that was killed", async () => {
    const text = `const guard = await agent.lock("/orphan");
      await guard.run(["sh", "-c", "echo $$; exec sleep 1000"]);`;
    const [holder, command] = await program(agent.socket, text);
    holder.kill("SIGKILL");
    await once(holder, "exit");
    await isTaken("/orphan");
    process.kill(Number(command), "SIGKILL");
    await (await agent.lock("/orphan")).release();
  });

  test("readers share and slots are counted", async () => {
    for (const [path, options, other] of [
      ["/table", { mode: "read" }, { mode: "write" }],
      ["/pool", { slots: 2 }, { slots: 2 }],
    ]) {
      const guards = [await agent.lock(path, options), await agent.lock(path, options)];
      await isTaken(path, other);
      await Promise.all(guards.map((guard) => guard.release()));
      await (await agent.lock(path, other)).release();
    }
  });

  test("one leads at a time and terms rise", async () => {
    for (const term of [1, 2]) {
      const leader = await agent.elect("/main", { data: "a:1" });
      assert.equal(leader.term, term);
      await assert.rejects(agent.elect("/main", { wait: 0 }), NotAcquired);
      await leader.release();
    }
  });

  test("a lock outlives the program that holds it until its token releases it", async () => {
    const text = `console.log(await agent.hold("/release", 600000, { name: "build" }));`;
    const [, line] = await program(agent.socket, text);
    const token = Number(line);
    await assert.rejects(agent.lock("/release", { wait: 0 }), { heldBy: "build" });
    assert.equal(await agent.hold("/release", 600_000, { token }), token);
    assert.equal(await agent.tokenIsCurrent("/release", token), true);
    await assert.rejects(agent.hold("/release", 1000, { wait: 0 }), NotAcquired);
    await assert.rejects(agent.releaseHold("/release", token + 1), Lost);
    await agent.releaseHold("/release", token);
    assert.equal(await agent.tokenIsCurrent("/release", token), false);
  });

  test("an item comes back until it is acknowledged", async () => {
    const jobs = agent.queue("/jobs");
    await jobs.put(new Uint8Array([255, 0]), { priority: 1, maxAttempts: 5 });
    for (const end of ["nack", Symbol.asyncDispose, "ack"]) {
      const item = await jobs.take({ visibility: 30_000, name: "worker" });
      assert.deepEqual([...item.data], [255, 0]);
      await item.extend();
      item.check();
      await item[end]();
      assert.throws(() => item.check(), Lost);
    }
    await assert.rejects(jobs.take({ wait: 0 }), NotAcquired);
  });

  test("members are there until they leave", async () => {
    const views = agent.members("/workers");
    const ids = async () => (await views.next()).value.map(({ id, data }) => `${id} ${data}`);
    assert.deepEqual(await ids(), []);
    const member = await agent.join("/workers", "a", { data: "x:1" });
    assert.deepEqual(await ids(), ["a x:1"]);
    member.check();
    await member[Symbol.asyncDispose]();
    assert.deepEqual(await ids(), []);
    await views.return();
  });

  test("a counter adds and shows", async () => {
    const hits = agent.counter("/hits");
    const values = [await hits.add(), await hits.add(41), await hits.add(-2), await hits.get()];
    assert.deepEqual(values, [1, 42, 40, 40]);
  });

  test("each bad input is refused by name", async () => {
    for (const [number, refused] of [
      () => agent.lock("deploy"),
      () => agent.lock("/"),
      () => agent.lock(undefined),
      () => agent.lock("/a/../b"),
      () => agent.lock("//a"),
      () => agent.lock("/a\0b"),
      () => agent.lock("/a\udc80"),
      () => agent.lock("/a", { wait: -1 }),
      () => agent.lock("/a", { wait: NaN }),
      () => agent.lock("/a", { wait: "1" }),
      () => agent.lock("/a", { sessionTimeout: Infinity }),
      () => agent.lock("/a", { mode: "both" }),
      () => agent.lock("/a", { slots: 0 }),
      () => agent.lock("/a", { slots: 2, mode: "read" }),
      () => agent.lock("/a", { name: 1n }),
      () => agent.lock("/a", { mode: "read", lockDelay: 1 }),
      () => agent.hold("/a", 0),
      () => agent.hold("/a", 1e12),
      () => agent.counter("/hits").add(2 ** 70),
      () => agent.queue("/jobs").put(new Uint8Array(3 << 20)),
      () => agent.queue("/jobs").put(7),
      () => agent.join("/workers", "a/b"),
      () => agent.locks("a"),
    ].entries()) {
      await assert.rejects(refused(), Refused, String(number));
    }
  });

  test("names of any characters are one lock", async () => {
    const guard = await agent.lock("/a b%2F?#ü+");
    const holder = fs.readFileSync("/proc/self/comm", "utf8").trim();
    await assert.rejects(agent.lock("/a b%2F?#ü+", { wait: 0 }), { heldBy: holder });
    assert.equal(await agent.tokenIsCurrent("/a b%2F?#ü+", guard.token), true);
    await guard.release();
  });

  test("the examples of the pages run", async () => {
    for (const page of ["README.md", "../../docs/user/node.md"]) {
      const text = fs.readFileSync(path.join(ROOT, page), "utf8");
      const examples = [...text.matchAll(/```js\n(.*?)```/gs)];
      assert.ok(examples.length > 0);
      for (const [, example] of examples) {
        const lib = JSON.stringify(path.join(ROOT, "lib/index.js"));
        const program = example.replace('"baton-agent";', `${lib};`);
        assert.notEqual(program, example);
        const use = `import { agent as own } from ${lib};
          Object.defineProperty(own, "socket", { value: ${JSON.stringify(agent.socket)} });`;
        await promisify(execFile)(process.execPath, ["--input-type=module", "--eval", use + program]);
      }
    }
  });

  test("the next agent takes the requests after a restart", async () => {
    const other = await AgentProcess.start();
    const last = await other.agent.lock("/deploy");
    await last.release();
    other.process.kill("SIGKILL");
    await once(other.process, "exit");
    await other.launch();
    const guard = await other.agent.lock("/deploy");
    assert.ok(guard.token > last.token);
    await guard.release();
    await other.stop();
  });

  test("the end of the agent ends guards and waits", async () => {
    const other = await AgentProcess.start();
    const guard = await other.agent.lock("/deploy");
    const next = await waiter(other.agent, "/deploy");
    other.process.kill("SIGKILL");
    if (!guard.signal.aborted) await once(guard.signal, "abort");
    assert.throws(() => guard.check(), Lost);
    await assert.rejects(next.guard, Unavailable);
    await assert.rejects(other.agent.lock("/deploy"), (error) => {
      return error instanceof Unavailable && error.since <= new Date() && /baton agent/.test(error.nextStep);
    });
    await other.stop();
  });
});

test("no agent is unavailable", async () => {
  const agent = new Agent("/nonexistent/socket");
  await assert.rejects(agent.health(), Unavailable);
  await assert.rejects(agent.lock("/deploy"), Unavailable);
});
