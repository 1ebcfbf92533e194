"""Faults under the holders of all languages: does any of them act under the lock of another?

    BATON=target/release/baton python3 clients/conformance/experiments.py --runs 100 --timeout 4

Three servers (of Baton, or of Apache ZooKeeper with `--zookeeper`), and two agents: the holders' one
uses the first server, the waiters' one the others. In each run each language holds a lock; every
5 ms it reads the clock, and while `check` passes after that, it adds its token and the reading to
that lock's log. The next language waits and does the same. A reading with an older token that is
later than one with a newer token is a double hold. A program that is stopped between its check and
its write writes late, which no lock prevents: the token is for that.

Faults: `server` stops the first server for good (SIGSTOP), until the waiters hold; `pause` stops the
holders and their agent, which go on then; `agent` kills the holders' agent; `program` kills the
holders.
"""

import argparse
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

from test_conformance import Agent, Build, Program

FAULTS = ("server", "pause", "agent", "program")


class Batons:
    def __init__(self, folder):
        data = os.path.join(folder, "servers")
        start = [os.path.abspath(os.environ["BATON"]), "--data-dir", data, "dev", "--servers", "3"]
        self.process = subprocess.Popen(start, stdout=subprocess.PIPE, text=True)
        self.addresses, self.pids = [], []
        for line in self.process.stdout:
            found = re.match(r"server \d+: \w+, ([^,]+), .*pid (\d+)", line)
            if found:
                self.addresses.append(found[1])
                self.pids.append(int(found[2]))
            if len(self.pids) == 3:
                break

    def stop(self):
        self.process.terminate()
        self.process.wait()


class ZooKeepers:
    """Three servers of the distribution's package, or of the class path that
    BATON_ZOOKEEPER_CLASSPATH names, as `cargo xtask` does."""

    def __init__(self, folder):
        with contextlib.ExitStack() as stack:
            ports = []
            for _ in range(9):
                listener = stack.enter_context(socket.socket())
                listener.bind(("127.0.0.1", 0))
                ports.append(listener.getsockname()[1])
        self.addresses = [f"127.0.0.1:{port}" for port in ports[:3]]
        peers = [f"server.{it + 1}=127.0.0.1:{ports[3 + it]}:{ports[6 + it]}" for it in range(3)]
        self.processes = []
        debian = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar"
        jars = os.environ.get("BATON_ZOOKEEPER_CLASSPATH") or debian
        for number in range(3):
            data = os.path.join(folder, f"zookeeper{number}")
            os.mkdir(data)
            with open(os.path.join(data, "myid"), "w") as file:
                file.write(str(number + 1))
            lines = ["tickTime=500", "initLimit=20", "syncLimit=5", f"dataDir={data}", *peers,
                     "maxSessionTimeout=60000", "minSessionTimeout=1000", "admin.enableServer=false",
                     "4lw.commands.whitelist=srvr",
                     f"clientPort={ports[number]}", "clientPortAddress=127.0.0.1"]
            config = os.path.join(data, "zoo.cfg")
            with open(config, "w") as file:
                file.write("\n".join(lines))
            log = open(os.path.join(data, "log"), "wb")
            main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
            start = ["java", "-Xmx200m", "-cp", jars, main, config]
            self.processes.append(subprocess.Popen(start, stdout=log, stderr=log))
        self.pids = [it.pid for it in self.processes]
        for port, process in zip(ports, self.processes):
            while not self.serves(port):
                if process.poll() is not None:
                    raise AssertionError(f"a ZooKeeper has ended: see {folder}")
                time.sleep(0.1)

    @staticmethod
    def serves(port):
        """Whether a server leads or follows, and so takes clients."""
        try:
            with socket.create_connection(("127.0.0.1", port), 5) as stream:
                stream.sendall(b"srvr")
                return b"Mode: " in b"".join(iter(lambda: stream.recv(4096), b""))
        except OSError:
            return False

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()


def double_holds(log):
    """Counts the instants at which a lock was held still after a newer token was held."""
    with open(log) as file:
        lines = [tuple(map(int, line.split()[1:])) for line in file]
    first = {}
    for token, instant in lines:
        first[token] = min(first.get(token, instant), instant)
    return sum(any(newer > token and begin < instant for newer, begin in first.items())
               for token, instant in lines)


def run(number, fault, servers, holders, waiters, build, folder):
    """Returns for each language the double holds of one run."""
    programs = {it: Program(it, build.commands[it], holders) for it in build.commands}
    languages = list(programs)
    others = {it: Program(it, build.commands[it], waiters) for it in languages}
    logs, pairs = {}, []
    try:
        for at, language in enumerate(languages):
            path = f"/{fault}-{number}-{language}"
            logs[language] = os.path.join(folder, path[1:])
            open(logs[language], "w").close()
            held = programs[language].acquire(path)
            programs[language].begin("act", held["id"], log=logs[language])
            waiter = others[languages[(at + 1) % len(languages)]]
            pairs.append((waiter, waiter.begin("lock", path=path), logs[language]))
            waiter.wait(pairs[-1][1], "waiting")
        stopped = {
            "server": servers.pids[:1],
            "pause": [holders.process.pid, *(it.process.pid for it in programs.values())],
        }.get(fault, [])
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        if fault == "agent":
            holders.end(signal.SIGKILL)
            holders.start()
        elif fault == "program":
            for program in programs.values():
                program.process.kill()
        for waiter, id, log in pairs:
            waiter.wait(id, "held")
            waiter.begin("act", id, log=log)
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        # What a holder did not do by now it will not do: it has had the time for a hundred lines.
        time.sleep(0.5)
    finally:
        for program in (*programs.values(), *others.values()):
            program.end()
    return {language: double_holds(log) for language, log in logs.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=4, help="session timeout in seconds")
    parser.add_argument("--fault", choices=FAULTS, action="append")
    parser.add_argument("--zookeeper", action="store_true")
    options = parser.parse_args()
    # A run that is terminated ends its servers, agents and programs too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    build = Build()
    servers = (ZooKeepers if options.zookeeper else Batons)(build.folder)
    agents = []
    try:
        for name, addresses in (("holders", servers.addresses[:1]), ("waiters", servers.addresses[1:])):
            folder = os.path.join(build.folder, name)
            os.mkdir(folder)
            agents.append(Agent(folder, ",".join(addresses), int(options.timeout * 1000)))
        print("| fault | " + " | ".join(build.commands) + " |")
        for fault in options.fault or FAULTS:
            doubles = dict.fromkeys(build.commands, 0)
            for number in range(options.runs):
                found = run(number, fault, servers, *agents, build, build.folder)
                for language, count in found.items():
                    doubles[language] += count > 0
            row = (f"{count} of {options.runs}" for count in doubles.values())
            print(f"| {fault} | " + " | ".join(row) + " |", flush=True)
    finally:
        for agent in agents:
            agent.end(signal.SIGTERM)
        servers.stop()
        shutil.rmtree(build.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
