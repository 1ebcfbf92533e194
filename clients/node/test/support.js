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
export const END = "0\r\n\r\n";
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
    await own.launch();
    return own;
  }

  async launch() {
    const argv = ["--data-dir", path.join(this.folder, "data"), "agent", "--socket", this.socket];
    const log = fs.openSync(path.join(this.folder, "log"), "a");
    this.process = spawn(path.resolve(COMMAND), argv, { stdio: ["ignore", "pipe", log] });
    // It prints one line once it listens.
    const [line] = await once(createInterface(this.process.stdout), "line");
    if (!line) throw new Error(fs.readFileSync(path.join(this.folder, "log"), "utf8"));
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

export const HEAD = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

export function chunk(event) {
  const line = `${JSON.stringify(event)}\n`;
  return `${Buffer.byteLength(line).toString(16)}\r\n${line}\r\n`;
}

export function whole(answer, status = "200 OK") {
  const body = JSON.stringify(answer);
  return `HTTP/1.1 ${status}\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
}

/**
 * An agent that answers each request with what `answer(url, send)` sends; `url` is `END` where the
 * body of a request ends that was open. Its `connections` are those that clients have made.
 */
export async function scripted(test, answer) {
  const socket = path.join(folder(), "sock");
  const connections = [];
  const server = net.createServer((connection) => {
    connections.push(connection);
    connection.on("error", () => {}); // The client has gone.
    const send = (text, isLast) => {
      if (isLast) connection.end(text);
      else connection.write(text);
    };
    connection.on("data", (data) => {
      let request = String(data);
      // The end of a body may come with the next request.
      if (request.startsWith(END)) {
        answer(END, send);
        request = request.slice(END.length);
      }
      if (request) answer(request.split(" ")[1], send);
    });
    test.after(() => connection.destroy());
  });
  server.listen(socket);
  await once(server, "listening");
  test.after(() => {
    server.close();
    fs.rmSync(path.dirname(socket), { recursive: true });
  });
  return Object.assign(new Agent(socket), { connections });
}
