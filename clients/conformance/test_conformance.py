"""One set of scenarios for the clients of all languages, and for `baton lock` beside them.

A program of each language carries out commands from its input, a JSON object a line, and reports
events in its output. The scenarios order events; no assertion counts time.
"""

import contextlib
import json
import os
import queue
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
XTASK_JAVA = os.path.join(HERE, "..", "..", "xtask", "java")
JAVA = os.path.join(HERE, "..", "java", "client", "src", "main", "java")
PATIENCE = 60
TIMEOUT_MS = 4000
GUARDS = int(os.environ.get("BATON_CONFORMANCE_GUARDS", "400"))


def serve(folder):
    """Starts a server that syncs to disk: its process and its address."""
    start = [os.path.abspath(os.environ["BATON"]), "serve", "--listen", "127.0.0.1:0"]
    start += ["--data-dir", os.path.join(folder, "server")]
    process = subprocess.Popen(start, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    words = process.stdout.readline().replace(",", " ").split()
    return process, next(it for it in words if it.startswith("127.0.0.1:"))


class Build:
    """The commands that run the programs, in a folder for what is compiled."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="baton")
        self.commands = {"python": [sys.executable, os.path.join(HERE, "program.py")]}
        for language, tool in (("node", "node"), ("go", "go"), ("java", "javac")):
            if shutil.which(tool):
                self.commands[language] = getattr(self, language)()
            elif os.environ.get("BATON_REQUIRE_LANGUAGES") == "all":
                raise AssertionError(f"{tool} is not installed here")
            else:
                print(f"NOT CHECKED: {language}: {tool} is not installed here", file=sys.stderr)

    def node(self):
        return ["node", os.path.join(HERE, "program.mjs")]

    def go(self):
        program = os.path.join(self.folder, "program")
        subprocess.run(["go", "build", "-o", program, "."], cwd=HERE, check=True)
        return [program]

    def java(self):
        classes = os.path.join(self.folder, "classes")
        package = os.path.join(JAVA, "io", "github", "batonlocks")
        sources = [os.path.join(package, name) for name in os.listdir(package)]
        sources.append(os.path.join(HERE, "Program.java"))
        subprocess.run(["javac", "-d", classes, *sources], check=True)
        main = "io.github.batonlocks.Program"
        return ["java", "-XX:TieredStopAtLevel=1", "-Xmx200m", "-cp", classes, main]

    def curator(self):
        """The command of a program that takes turns by Curator, from the class path of `xtask`'s
        tasks; `None` without one."""
        jars = os.environ.get("BATON_ZOOKEEPER_CLASSPATH")
        if not jars:
            print("NOT CHECKED: Curator: BATON_ZOOKEEPER_CLASSPATH names no jars", file=sys.stderr)
            return None
        path = f"{jars}:{os.path.join(self.folder, 'curator')}"
        source = os.path.join(XTASK_JAVA, "CuratorTurns.java")
        subprocess.run(["javac", "-cp", path, "-d", path.split(":")[-1], source], check=True)
        return ["java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", path, "CuratorTurns"]


class Agent:
    """An agent with a server of its own."""

    def __init__(self, folder, servers=None, timeout_ms=TIMEOUT_MS):
        self.folder, self.socket = folder, os.path.join(folder, "agent.sock")
        self.data = os.path.join(folder, "data")
        self.servers = servers or f"unix:{self.data}/baton.sock"
        self.command = os.path.abspath(os.environ["BATON"])
        self.arguments = ["--session-timeout", f"{timeout_ms}ms"]
        if servers:
            self.arguments += ["--servers", servers]
        self.start()

    def start(self):
        start = [self.command, "--data-dir", self.data, "agent", "--socket", self.socket,
                 *self.arguments]
        with open(os.path.join(self.folder, "log"), "ab") as log:
            self.process = subprocess.Popen(start, stdout=subprocess.PIPE, stderr=log)
        # It prints one line once it listens.
        if not self.process.stdout.readline():
            raise AssertionError(open(os.path.join(self.folder, "log")).read())

    def end(self, number):
        self.process.send_signal(number)
        self.process.wait(PATIENCE)
        self.process.stdout.close()

    def stop(self):
        self.end(signal.SIGTERM)
        # The agent has started a server of this folder, whose number is in its file.
        with open(os.path.join(self.data, "LOCK")) as file:
            os.kill(int(file.read().split()[0]), signal.SIGTERM)

    def ask(self, method, url):
        """Sends a request as another program would."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE)
            connection.connect(self.socket)
            head = f"{method} {url} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
            connection.sendall(f"{head}Content-Length: 0\r\n\r\n".encode())
            answer = b""
            while part := connection.recv(1 << 16):
                answer += part
        return json.loads(answer.split(b"\r\n\r\n", 1)[1])


class Program:
    """A program of one language that carries out commands."""

    def __init__(self, language, command, agent=None, **options):
        self.language, self._events, self._number = language, {}, 0
        self._turn = threading.Lock()
        start = [*command, agent.socket] if agent else command
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(start, stdin=pipe, stdout=pipe, text=True, **options)
        threading.Thread(target=self._read, daemon=True).start()

    def _of(self, id):
        with self._turn:
            return self._events.setdefault(id, queue.Queue())

    def _read(self):
        with self.process.stdout as output:
            for line in output:
                event = json.loads(line)
                self._of(event["id"]).put(event)

    def begin(self, do, id=None, **fields):
        """Sends a command, and returns the id of its events."""
        if id is None:
            self._number += 1
            id = f"{do}-{self._number}"
        self.process.stdin.write(json.dumps({"do": do, "id": id, **fields}) + "\n")
        self.process.stdin.flush()
        return id

    def wait(self, id, *kinds):
        """Waits for an event of these kinds; others are passed over but not errors."""
        while True:
            event = self._of(id).get(timeout=PATIENCE)
            if event["event"] in kinds:
                return event
            if event["event"] == "error":
                raise AssertionError(f"{self.language}: {event}")

    def do(self, do, id=None, **fields):
        """Carries out a command, and returns its result."""
        return self.wait(self.begin(do, id, **fields), "done").get("result")

    def acquire(self, path, do="lock", **fields):
        return self.wait(self.begin(do, path=path, **fields), "held")

    def refused(self, kind, do, id=None, **fields):
        event = self.wait(self.begin(do, id, **fields), "error", "done", "held")
        if event.get("kind") != kind:
            raise AssertionError(f"{self.language}: {do}: {event}, not {kind}")
        return event

    def is_held(self, held):
        return self.wait(self.begin("check", held["id"]), "check")["held"]

    def end(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        self.process.wait(PATIENCE)
        self.process.stdin.close()


class Conformance(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not os.environ.get("BATON"):
            raise unittest.SkipTest("NOT CHECKED: BATON names no command baton")
        cls.build = Build()
        cls.agent = Agent(cls.build.folder)
        cls.programs = [cls.start(language) for language in cls.build.commands]

    @classmethod
    def tearDownClass(cls):
        for program in cls.programs:
            program.end()
        cls.agent.stop()
        shutil.rmtree(cls.build.folder, ignore_errors=True)

    @classmethod
    def start(cls, language):
        return Program(language, cls.build.commands[language], cls.agent)

    def each(self):
        for program in self.programs:
            with self.subTest(language=program.language):
                yield program

    def pairs(self):
        """Each program with the next one of another language."""
        return list(zip(self.programs, [*self.programs[1:], self.programs[0]]))

    def test_tokens_rise_over_all_languages(self):
        last = 0
        for program in [*self.programs, *self.programs]:
            held = program.acquire("/tokens")
            self.assertGreater(held["token"], last)
            last = held["token"]
            self.assertTrue(program.is_held(held))
            self.assertTrue(program.do("current", path="/tokens", token=last))
            program.do("release", held["id"])
            self.assertFalse(program.is_held(held))
            self.assertFalse(program.do("current", path="/tokens", token=last))

    def test_one_that_does_not_wait_is_given_the_holders_name(self):
        for holder, other in self.pairs():
            held = holder.acquire("/try", name=f"holder in {holder.language}")
            for wait in (0, 100):
                event = other.refused("NotAcquired", "lock", path="/try", wait=wait)
                self.assertEqual(event["held_by"], f"holder in {holder.language}")
            holder.do("release", held["id"])

    def test_waiters_of_all_languages_are_served_in_their_order(self):
        held = self.programs[0].acquire("/order")
        waiters = []
        for place, program in enumerate([*self.programs, *self.programs], 1):
            waiters.append((program, program.begin("lock", path="/order")))
            self.assertEqual(program.wait(waiters[-1][1], "waiting")["place"], place)
        self.programs[0].do("release", held["id"])
        last = held["token"]
        for program, id in waiters:
            held = program.wait(id, "held")
            self.assertGreater(held["token"], last)
            last = held["token"]
            program.do("release", id)

    def test_the_death_of_a_holder_or_of_a_waiter_passes_the_lock_on_at_once(self):
        for holder, next_one in self.pairs():
            program, waiter = self.start(holder.language), self.start(holder.language)
            held = program.acquire("/death", timeout=40_000)
            waiter.wait(waiter.begin("lock", path="/death", timeout=40_000), "waiting")
            id = next_one.begin("lock", path="/death", timeout=40_000)
            self.assertEqual(next_one.wait(id, "waiting")["place"], 2)
            # Their session lives on: nothing but the closed sockets frees the lock.
            waiter.end()
            program.end()
            self.assertGreater(next_one.wait(id, "held")["token"], held["token"])
            next_one.do("release", id)

    def test_a_guard_that_another_request_ends_is_lost(self):
        for program in self.each():
            held = program.acquire("/lost")
            answer = self.agent.ask("POST", f"/v1/guard/{held['guard']}/release")
            self.assertEqual(answer["event"], "released")
            program.wait(held["id"], "lost")
            self.assertFalse(program.is_held(held))
            program.refused("Lost", "create", held["id"], path="/late", data="")
            program.refused("Lost", "release", held["id"])

    def test_guarded_writes_readers_slots_and_terms_agree(self):
        term = 0
        for number, (program, other) in enumerate(self.pairs()):
            held = program.acquire("/main", do="elect")
            self.assertGreater(held["term"], term)
            term = held["term"]
            program.do("create", held["id"], path=f"/state{number}", data="x")
            program.refused("Refused", "create", held["id"], path=f"/state{number}", data="x")
            program.do("release", held["id"])
            for path, mine, theirs in (("/table", {"mode": "read"}, {"mode": "write"}),
                                       ("/pool", {"slots": 2}, {"slots": 2})):
                first = program.acquire(path, **mine)
                second = other.acquire(path, **mine)
                program.refused("NotAcquired", "lock", path=path, wait=0, **theirs)
                program.do("release", first["id"])
                other.do("release", second["id"])

    def test_queues_counters_members_and_holds_agree(self):
        for number, (program, other) in enumerate(self.pairs(), 1):
            program.do("put", path="/jobs", data="ü")
            item = other.acquire("/jobs", do="take")
            self.assertEqual((item["data"], item["attempt"]), ("ü", 1))
            other.do("nack", item["id"])
            dying = self.start(program.language)
            dying.acquire("/jobs", do="take")
            dying.end()
            item = program.acquire("/jobs", do="take")
            program.do("ack", item["id"])
            other.refused("NotAcquired", "take", path="/jobs", wait=0)
            self.assertEqual(program.do("add", path="/hits", delta=2), 2 * number)
            member = program.acquire("/workers", do="join", name=program.language)
            self.assertEqual(other.do("members", path="/workers"), [program.language])
            program.do("leave", member["id"])
            token = program.do("hold", path="/hold", ttl=600_000)
            self.assertTrue(other.do("current", path="/hold", token=token))
            other.do("release_hold", path="/hold", token=token)

    def test_bad_input_is_refused(self):
        for program in self.each():
            for fields in ({"path": "x"}, {"path": "//a"}, {"path": "/a", "mode": "both"},
                           {"path": "/a", "slots": 2, "mode": "read"}):
                program.refused("Refused", "lock", **fields)

    def test_one_holds_at_a_time_among_all_languages_the_shell_and_curator(self):
        folder = os.path.join(self.build.folder, "mixed")
        os.mkdir(folder)
        # Curator has no unix sockets.
        server, address = serve(folder)
        agent = Agent(folder, address)
        commands = self.build.commands.items()
        programs = [Program(language, command, agent) for language, command in commands]
        try:
            self.take_turns(programs, agent, os.path.join(folder, "turns"))
        finally:
            for program in programs:
                program.end()
            agent.end(signal.SIGTERM)
            server.terminate()
            server.wait(PATIENCE)
            server.stdout.close()

    def take_turns(self, programs, agent, log):
        open(log, "w").close()
        curator = self.build.curator()
        others = curator and subprocess.Popen([*curator, agent.servers, "/turns", "25", log])
        while others and others.poll() is None and not os.path.getsize(log):
            time.sleep(0.01)
        cycles = [(it, it.begin("cycle", path="/turns", count=25, log=log)) for it in programs]
        script = f'echo begin shell "$BATON_TOKEN" >>{log}; echo end shell "$BATON_TOKEN" >>{log}'
        lock = [agent.command, "lock", "--servers", agent.servers, "/turns", "--"]
        for _ in range(10):
            subprocess.run([*lock, "sh", "-c", script], check=True, timeout=PATIENCE)
        for program, id in cycles:
            program.wait(id, "done")
        if others:
            self.assertEqual(others.wait(PATIENCE), 0)
        with open(log) as file:
            lines = [line.split() for line in file]
        self.assertEqual(len(lines), 2 * (25 * (len(programs) + bool(others)) + 10))
        last = 0
        for begin, end in zip(lines[::2], lines[1::2]):
            self.assertEqual((begin[0], end), ("begin", ["end", *begin[1:]]))
            self.assertGreater(int(begin[2]), last)
            last = int(begin[2])

    def paused(self, stop, resume):
        """Holds a lock in each language while `stop` to `resume` is longer than its lease."""
        guards = [(it, it.acquire(f"/paused/{it.language}")) for it in self.programs]
        stop()
        # No lease that a program has read lasts longer than a session timeout from now on.
        end = time.clock_gettime(time.CLOCK_BOOTTIME) + TIMEOUT_MS / 1000
        while time.clock_gettime(time.CLOCK_BOOTTIME) < end:
            time.sleep(0.1)
        checks = [(it, it.begin("check", held["id"])) for it, held in guards]
        resume()
        for program, id in checks:
            with self.subTest(language=program.language):
                self.assertFalse(program.wait(id, "check")["held"])

    def signal_all(self, number):
        for program in self.programs:
            program.process.send_signal(number)
        for program in self.programs:
            if number == signal.SIGSTOP:
                _, status = os.waitpid(program.process.pid, os.WUNTRACED)
                self.assertTrue(os.WIFSTOPPED(status))

    def test_a_stopped_program_finds_its_lease_ended_at_its_first_check(self):
        # The agent's own lease goes on meanwhile, and messages of it arrive.
        self.paused(lambda: self.signal_all(signal.SIGSTOP), lambda: self.signal_all(signal.SIGCONT))

    def test_a_lease_ends_while_the_agent_is_stopped(self):
        process = self.agent.process
        try:
            self.paused(lambda: process.send_signal(signal.SIGSTOP), lambda: None)
        finally:
            process.send_signal(signal.SIGCONT)

    def ends_with_the_agent(self, number):
        path = f"/agent-{number}"
        guards = [(it, it.acquire(f"{path}/{it.language}")) for it in self.programs]
        waiters = []
        for program, (holder, held) in zip(reversed(self.programs), guards):
            waiters.append((program, program.begin("lock", path=f"{path}/{holder.language}")))
            program.wait(waiters[-1][1], "waiting")
        self.agent.end(number)
        for program, held in guards:
            program.wait(held["id"], "lost")
            self.assertFalse(program.is_held(held))
        for program, id in waiters:
            self.assertEqual(program.wait(id, "error")["kind"], "Unavailable")
            program.refused("Unavailable", "lock", path=path)
        self.agent.start()
        for program, held in guards:
            with self.subTest(language=program.language):
                again = program.acquire(f"{path}/{program.language}")
                self.assertGreater(again["token"], held["token"])
                program.do("release", again["id"])

    def test_the_death_of_the_agent_ends_guards_and_waits_and_the_next_one_serves(self):
        self.ends_with_the_agent(signal.SIGKILL)

    def test_the_stop_of_the_agent_ends_guards_and_waits_and_the_next_one_serves(self):
        self.ends_with_the_agent(signal.SIGTERM)

    @staticmethod
    def end_those_in(folder):
        """Ends the agent and the server that a program has started with this as its home."""
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            with contextlib.suppress(OSError):  # It has ended, or belongs to another user.
                with open(f"/proc/{pid}/environ", "rb") as file:
                    is_of_home = f"HOME={folder}".encode() in file.read().split(b"\0")
                if is_of_home:
                    # Until then it writes there.
                    with open(os.pidfd_open(pid), "rb", buffering=0) as process:
                        os.kill(pid, signal.SIGTERM)
                        select.select([process], [], [], PATIENCE)

    def starts_an_agent(self, prepare, *prefix):
        """A program of each language, in a home that is prepared so, starts an agent and locks."""
        for language, command in self.build.commands.items():
            with self.subTest(language=language), tempfile.TemporaryDirectory() as home:
                os.chmod(self.build.folder, 0o755)
                prepare(home)
                if os.geteuid() == 0:
                    # The socket of root is the machine's. This user may read what root may.
                    for folder, _, _ in os.walk(home):
                        os.chown(folder, 65534, 65534)
                    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                               "--inh-caps=+dac_override", "--ambient-caps=+dac_override", *command]
                path = f"{os.path.dirname(self.agent.command)}:{os.environ['PATH']}"
                environment = {"PATH": path, "HOME": home, "XDG_RUNTIME_DIR": home,
                               "BATON_IDLE": "30s"}
                program = Program(language, [*prefix, *command], env=environment, cwd=home)
                try:
                    held = program.acquire("/started")
                    self.assertTrue(program.is_held(held))
                    program.do("release", held["id"])
                finally:
                    program.end()
                    self.end_those_in(home)

    @staticmethod
    def leave_dead_socket(home):
        """Leaves what an agent leaves that SIGKILL ends."""
        os.mkdir(os.path.join(home, "baton"), 0o700)
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(os.path.join(home, "baton", "agent.sock"))

    @unittest.skipIf(os.path.exists("/run/baton/agent.sock"), "this machine has an agent")
    def test_a_program_without_an_agent_starts_one_for_its_user(self):
        self.starts_an_agent(lambda home: None)

    @unittest.skipIf(os.path.exists("/run/baton/agent.sock"), "this machine has an agent")
    def test_a_program_starts_an_agent_in_place_of_a_dead_one(self):
        self.starts_an_agent(self.leave_dead_socket)

    def test_a_program_starts_an_agent_where_it_cannot_use_the_machines(self):
        # A /run of their own, with a file that nobody can connect to, as others cannot to root's.
        alone = ["unshare", "--mount", "sh", "-ec"]
        if subprocess.run([*alone, "mount -t tmpfs none /run"], capture_output=True).returncode:
            self.skipTest("NOT CHECKED: no /run of its own can be mounted here")
        script = 'mount -t tmpfs none /run; mkdir /run/baton; >/run/baton/agent.sock; exec "$@"'
        self.starts_an_agent(lambda home: None, *alone, script, "sh")

    def test_many_guards_of_a_program_are_free_after_its_death(self):
        count = GUARDS // len(self.programs)
        before = self.agent.ask("GET", "/v1/health")["guards"]
        holders = [self.start(it.language) for it in self.programs]
        waits = [(it, it.begin("many", path=f"/many/{it.language}", count=count)) for it in holders]
        for program, id in waits:
            program.wait(id, "done")
        guards = self.agent.ask("GET", "/v1/health")["guards"]
        self.assertEqual(guards, before + count * len(holders))
        for program, (other, _) in zip(holders, self.pairs()):
            program.end()
            for number in range(0, count, max(count // 5, 1)):
                held = other.acquire(f"/many/{program.language}/{number}")
                other.do("release", held["id"])


if __name__ == "__main__":
    unittest.main()
