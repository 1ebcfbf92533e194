"""Time of a lock and its release, without others: each language through one agent, the Rust
library, and the ZooKeeper libraries of those languages, all on one server that syncs to disk.

    cargo build --profile dist -p baton-locks-cli -p baton-bench
    BATON=target/dist/baton BATON_BENCH=target/dist/baton-bench python3 clients/conformance/speed.py

Each takes its turn in each round; the medians of the rounds are printed. pip, Maven and Go fetch
the other libraries at pinned versions; one that cannot be fetched is named and left out.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time

from test_conformance import HERE, XTASK_JAVA, Agent, Build, Program, serve

CHECKS = 1_000_000
KAZOO = "kazoo==2.11.0"


def report(*command):
    """Runs a program that prints one JSON object, and returns that."""
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def quantiles(nanoseconds):
    found = sorted(nanoseconds)
    return [found[int((len(found) - 1) * share)] / 1000 for share in (0.5, 0.99)]


def library(address, seconds):
    """Returns a measurement of the Rust library."""
    start = [os.path.abspath(os.environ["BATON_BENCH"]), "lock", "--servers", address,
             "--connections", "1", "--seconds", str(seconds)]

    def measure():
        found = report(*start)["latency_us"]
        return [found["p50"], found["p99"]]
    return measure


def peer(*command):
    def measure():
        found = report(*command)
        return [found["p50_us"], found["p99_us"]]
    return measure


def kazoo(folder, address, count):
    target = os.path.join(folder, "kazoo")
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                    "--root-user-action=ignore", "--target", target, KAZOO], check=True)
    sys.path.append(target)
    from kazoo.client import KazooClient
    client = KazooClient(address)
    client.start()
    lock = client.Lock("/speed-kazoo")

    def measure():
        times = []
        for _ in range(count):
            begin = time.monotonic_ns()
            lock.acquire()
            lock.release()
            times.append(time.monotonic_ns() - begin)
        return quantiles(times)
    return measure


def curator(folder, address, seconds):
    jars, classes = os.path.join(folder, "jars"), os.path.join(folder, "curator")
    subprocess.run(["mvn", "-B", "-q", "dependency:copy-dependencies", f"-DoutputDirectory={jars}",
                    "-f", os.path.join(XTASK_JAVA, "pom.xml")], check=True)
    source = os.path.join(XTASK_JAVA, "CuratorBench.java")
    path = f"{jars}/*:{classes}"
    subprocess.run(["javac", "-nowarn", "-cp", path, "-d", classes, source], check=True)
    return peer("java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", path,
                "CuratorBench", address, "/speed-curator", "1", "1", str(seconds))


def go_zookeeper(folder, address, seconds):
    program = os.path.join(folder, "go-zookeeper")
    source = os.path.join(HERE, "go-zookeeper")
    subprocess.run(["go", "build", "-o", program, "."], cwd=source, check=True)
    return peer(program, address, "/speed-go-zookeeper", str(seconds))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=2000, help="locks of a language in a round")
    parser.add_argument("--seconds", type=int, default=2, help="time of a library in a round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    # A run that is terminated ends its server, its agent and its programs too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    build = Build()
    server, address = serve(build.folder)
    agent = Agent(build.folder, address)
    programs = {it: Program(it, command, agent) for it, command in build.commands.items()}
    try:
        measures = {"Rust library": library(address, options.seconds)}
        for language, program in programs.items():
            measures[language] = lambda program=program: quantiles(
                program.do("turns", path="/speed", count=options.count))
        others = {"kazoo": ("python", kazoo, options.count),
                  "go-zookeeper": ("go", go_zookeeper, options.seconds),
                  "Curator": ("java", curator, options.seconds)}
        of = {}
        for name, (language, prepare, amount) in others.items():
            try:
                measures[name] = prepare(build.folder, address, amount)
                of[language] = name
            except (OSError, ImportError, subprocess.CalledProcessError) as error:
                print(f"NOT MEASURED: {name}: {error}", file=sys.stderr)
        # The first round compiles.
        rounds = [{it: measure() for it, measure in measures.items()}
                  for _ in range(options.rounds + 1)][1:]
        p50, p99 = ({it: statistics.median(found[it][at] for found in rounds) for it in measures}
                    for at in (0, 1))
        print("| a lock and its release | µs p50 | µs p99 | µs p50 beyond the Rust library |"
              " other library, p50 and p99 | ns for a check |")
        print("|---|---:|---:|---:|---|---:|")
        for name in measures:
            beyond, beside, check = f"{p50[name] - p50['Rust library']:.0f}", "–", "–"
            if name in of:
                other = of[name]
                ratios = (f"{it[other] / it[name]:.1f} ×" for it in (p50, p99))
                beside = f"{other}: {', '.join(ratios)}"
            if name in programs:
                held = programs[name].acquire("/checked")["id"]
                check = f"{programs[name].do('checks', held, count=CHECKS):.0f}"
                programs[name].do("release", held)
            print(f"| {name} | {p50[name]:.0f} | {p99[name]:.0f} | {beyond} | {beside} | {check} |")
    finally:
        for program in programs.values():
            program.end()
        agent.end(signal.SIGTERM)
        server.terminate()
        server.wait()
        shutil.rmtree(build.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
