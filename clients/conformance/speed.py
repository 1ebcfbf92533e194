"""Time of a lock and its release in each language, through one agent, without others.

    BATON=target/release/baton python3 clients/conformance/speed.py

Each turn also adds two lines to a file. The median of `--rounds` rounds of `--count` turns.
"""

import argparse
import os
import shutil
import statistics
import time

from test_conformance import Agent, Build, Program


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    build = Build()
    agent = Agent(build.folder)
    log = os.path.join(build.folder, "log")
    open(log, "w").close()
    print("| language | µs for a lock and its release |")
    for language, command in build.commands.items():
        program = Program(language, command, agent)
        times = []
        for _ in range(options.rounds + 1):
            begin = time.monotonic_ns()
            program.do("cycle", path="/speed", count=options.count, log=log)
            times.append((time.monotonic_ns() - begin) / options.count / 1000)
        program.end()
        # The first round compiles.
        print(f"| {language} | {statistics.median(times[1:]):.0f} |", flush=True)
    agent.stop()
    shutil.rmtree(build.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
