// Carries out the commands of the conformance suite with the client for Node.

import fs from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout } from "node:timers/promises";

import * as baton from "../node/lib/index.js";

const agent = new baton.Agent(process.argv[2]);
const held = new Map();

function say(event, fields) {
  fs.writeSync(1, `${JSON.stringify({ event, ...fields })}\n`);
}

async function keep(id, acquiring) {
  const found = await acquiring;
  held.set(id, found);
  const { token, term, attempt } = found;
  say("held", { id, guard: found.id ?? "", token, term, attempt, data: found.data?.toString() });
  found.signal.addEventListener("abort", () => say("lost", { id }));
}

async function cycle({ path, count, log }) {
  const file = fs.openSync(log, "a");
  for (let number = 0; number < count; number++) {
    const guard = await agent.lock(path);
    fs.writeSync(file, `begin node ${guard.token}\n`);
    guard.check();
    fs.writeSync(file, `end node ${guard.token}\n`);
    await guard.release();
  }
}

/** Returns the nanoseconds of each lock and its release. */
async function turns({ path, count }) {
  const times = [];
  for (let number = 0; number < count; number++) {
    const begin = process.hrtime.bigint();
    await (await agent.lock(path)).release();
    times.push(Number(process.hrtime.bigint() - begin));
  }
  return times;
}

/** Returns the nanoseconds of one check. */
function checks({ id, count }) {
  const guard = held.get(id);
  const begin = process.hrtime.bigint();
  for (let number = 0; number < count; number++) guard.check();
  return Number(process.hrtime.bigint() - begin) / count;
}

/** Adds its token and an instant at which the lock was held still. */
async function act({ id, log }) {
  const file = fs.openSync(log, "a");
  const guard = held.get(id);
  for (;;) {
    const now = process.hrtime.bigint();
    if (!isHeld(guard)) return;
    fs.writeSync(file, `node ${guard.token} ${now}\n`);
    await setTimeout(5);
  }
}

async function many({ id, path, count }) {
  for (let number = 0; number < count; number++) {
    held.set(`${id}${number}`, await agent.lock(`${path}/${number}`));
  }
}

async function members({ path }) {
  for await (const view of agent.members(path)) return view.map((it) => it.id).sort();
}

function isHeld(found) {
  try {
    found.check();
    return true;
  } catch {
    return false;
  }
}

function lock({ id, path, mode, slots, wait, name, timeout }) {
  const onWait = ({ place }) => say("waiting", { id, place });
  return agent.lock(path, { mode, slots, wait, name, sessionTimeout: timeout, onWait });
}

const ACTIONS = {
  release: ({ id }) => held.get(id).release(),
  leave: ({ id }) => held.get(id).leave(),
  create: ({ id, path, data }) => held.get(id).txn([{ op: "create", path, data }]),
  ack: ({ id }) => held.get(id).ack(),
  nack: ({ id }) => held.get(id).nack("again"),
  put: async ({ path, data }) => void (await agent.queue(path).put(data)),
  add: ({ path, delta }) => agent.counter(path).add(delta),
  hold: ({ path, ttl }) => agent.hold(path, ttl),
  release_hold: ({ path, token }) => agent.releaseHold(path, token),
  current: ({ path, token }) => agent.tokenIsCurrent(path, token),
  members,
  cycle,
  turns,
  checks,
  act,
  many,
};

async function carryOut(command) {
  const { do: action, id, path, wait, name } = command;
  if (action === "lock") return keep(id, lock(command));
  if (action === "elect") return keep(id, agent.elect(path));
  if (action === "take") return keep(id, agent.queue(path).take({ wait }));
  if (action === "join") return keep(id, agent.join(path, name));
  if (action === "check") return say("check", { id, held: isHeld(held.get(id)) });
  say("done", { id, result: (await ACTIONS[action](command)) ?? null });
}

createInterface(process.stdin).on("line", async (line) => {
  const command = JSON.parse(line);
  try {
    await carryOut(command);
  } catch (error) {
    if (!(error instanceof baton.BatonError)) throw error;
    say("error", { id: command.id, kind: error.name, text: String(error), held_by: error.heldBy });
  }
});
