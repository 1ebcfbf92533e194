// An agent with a server of its own, a scripted agent, and clocks that tests set.

import { spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

import { Agent } from "../lib/index.js";
import { ask } from "../lib/http.js";

export const ROOT = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
export const COMMAND = process.env.BATON;

function folder() {
  return fs.mkdtempSync(path.join(os.tmpdir(), "baton"));
}

/** An agent of the command that BATON names. */
export class AgentProcess {
  static async start() {
    const own = new AgentProcess();
    own.folder = folder();
    own.socket = path.join(own.folder, "agent.sock");
    own.agent = new Agent(own.socket);
    const data = path.join(own.folder, "data");
    const argv = ["--data-dir", data, "agent", "--socket", own.socket];
    const log = fs.openSync(path.join(own.folder, "log"), "w");
    own.process = spawn(path.resolve(COMMAND), argv, { stdio: ["ignore", "pipe", log] });
    // It prints one line once it listens.
    const [line] = await once(createInterface(own.process.stdout), "line");
    if (!line) throw new Error(fs.readFileSync(path.join(own.folder, "log"), "utf8"));
    return own;
  }

  async stop() {
    const { process: agent } = this;
    if (agent.exitCode === null && agent.signalCode === null) {
      agent.kill("SIGTERM");
      await once(agent, "exit");
    }
    // The agent has started a server of this folder, whose number is in its file.
    const lock = fs.readFileSync(path.join(this.folder, "data", "LOCK"), "utf8");
    process.kill(parseInt(lock), "SIGTERM");
    fs.rmSync(this.folder, { recursive: true, force: true });
  }

  /** Ends a guard so that its holder knows nothing before a message comes. */
  async endFromOutside(guard) {
    const call = { method: "POST", url: `/v1/guard/${guard.id}/release` };
    return (await ask(this.socket, call)).event === "released";
  }
}

/** Starts a program that has `agent`; returns it and its first line. */
export async function program(socket, text) {
  const head = `import { Agent } from ${JSON.stringify(path.join(ROOT, "lib/index.js"))};
    const agent = new Agent(${JSON.stringify(socket)});`;
  const argv = ["--input-type=module", "--eval", head + text];
  const started = spawn(process.execPath, argv, { stdio: ["pipe", "pipe", "inherit"] });
  const [line] = await once(createInterface(started.stdout), "line");
  return [started, line];
}

/** An agent that answers each request with what `answer(url, send)` sends. */
export async function scripted(test, answer) {
  const socket = path.join(folder(), "sock");
  const server = net.createServer((connection) => {
    connection.on("error", () => {}); // The client has gone.
    connection.once("data", (request) => {
      answer(String(request).split(" ")[1], (text, isLast) => {
        if (isLast) connection.end(text);
        else connection.write(text);
      });
    });
    test.after(() => connection.destroy());
  });
  server.listen(socket);
  await once(server, "listening");
  test.after(() => {
    server.close();
    fs.rmSync(path.dirname(socket), { recursive: true });
  });
  return new Agent(socket);
}
