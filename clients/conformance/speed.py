"""Time of a lock and its release in each language, through one agent, without others, and of a check.

    BATON=target/release/baton python3 clients/conformance/speed.py

Each turn also adds two lines to a file. The median of `--rounds` rounds of `--count` turns. Where
kazoo is installed, its `Lock` does the same on the same server.
"""

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time

from test_conformance import Agent, Build, Program

CHECKS = 1_000_000


def serve(folder):
    """Starts a server that syncs to disk: its process and its address."""
    start = [os.path.abspath(os.environ["BATON"]), "serve", "--listen", "127.0.0.1:0"]
    start += ["--data-dir", os.path.join(folder, "server")]
    process = subprocess.Popen(start, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    words = process.stdout.readline().replace(",", " ").split()
    return process, next(it for it in words if it.startswith("127.0.0.1:"))


def kazoo_cycle(lock, count, log):
    file = os.open(log, os.O_WRONLY | os.O_APPEND)
    for number in range(count):
        with lock:
            os.write(file, b"begin kazoo %d\n" % number)
            os.write(file, b"end kazoo %d\n" % number)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()

    def median(cycle):
        times = []
        for _ in range(options.rounds + 1):
            begin = time.monotonic_ns()
            cycle()
            times.append((time.monotonic_ns() - begin) / options.count / 1000)
        # The first round compiles.
        return f"{statistics.median(times[1:]):.0f}"

    build = Build()
    server, address = serve(build.folder)
    agent = Agent(build.folder, address)
    log = os.path.join(build.folder, "log")
    open(log, "w").close()
    print("| language | µs for a lock and its release | ns for a check |")
    print("|---|---:|---:|")
    for language, command in build.commands.items():
        program = Program(language, command, agent)
        turns = median(lambda: program.do("cycle", path="/speed", count=options.count, log=log))
        held = program.acquire("/checked")["id"]
        check = program.wait(program.begin("checks", held, count=CHECKS), "done")["result"]
        program.end()
        print(f"| {language} | {turns} | {check:.0f} |", flush=True)
    try:
        from kazoo.client import KazooClient
    except ImportError:
        print("NOT MEASURED: kazoo: it is not installed here", file=sys.stderr)
    else:
        client = KazooClient(address)
        client.start()
        lock = client.Lock("/speed-kazoo")
        print(f"| kazoo | {median(lambda: kazoo_cycle(lock, options.count, log))} | – |")
        client.stop()
    agent.end(signal.SIGTERM)
    server.terminate()
    server.wait()
    shutil.rmtree(build.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
