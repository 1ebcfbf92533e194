"""An agent with a server of its own, a scripted agent, and a clock that tests set."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

import baton
from baton import _held
from baton._http import Link, ask, complete

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PATIENCE = 60


class AgentCase(unittest.TestCase):
    """Tests with an agent, in a folder of their own. `BATON` names the command."""

    @classmethod
    def setUpClass(cls):
        command = os.environ.get("BATON")
        if not command:
            print(f"NOT CHECKED: {cls.__name__}: BATON names no command baton", file=sys.stderr)
            raise unittest.SkipTest("BATON names no command baton")
        cls.folder = tempfile.mkdtemp(prefix="baton")
        cls.socket = os.path.join(cls.folder, "agent.sock")
        cls.agent = baton.Agent(cls.socket)
        data = os.path.join(cls.folder, "data")
        start = [os.path.abspath(command), "--data-dir", data, "agent", "--socket", cls.socket]
        log = os.path.join(cls.folder, "log")
        with open(log, "wb") as file:
            cls.process = subprocess.Popen(start, stdout=subprocess.PIPE, stderr=file)
        # It prints one line once it listens.
        if not cls.process.stdout.readline():
            with open(log) as file:
                raise AssertionError(file.read())

    @classmethod
    def tearDownClass(cls):
        cls.process.terminate()
        cls.process.wait(PATIENCE)
        cls.process.stdout.close()
        # The agent has started a server of this folder, whose number is in its file.
        with open(os.path.join(cls.folder, "data", "LOCK")) as file:
            os.kill(int(file.read().split()[0]), signal.SIGTERM)
        shutil.rmtree(cls.folder, ignore_errors=True)

    def request(self, method, url):
        """Sends a request as another program would."""
        return complete(ask(Link, self.socket, (method, url, {})))

    def end_from_outside(self, guard):
        """Ends a guard so that its holder does not know of it before a message comes."""
        answer = self.request("POST", f"/v1/guard/{guard.id}/release")
        self.assertEqual(answer["event"], "released")

    def program(self, text, *arguments):
        """Starts a program that has `agent`."""
        head = f"import baton, os, signal, sys\nagent = baton.Agent({self.socket!r})\n"
        command = [sys.executable, "-c", head + text, *arguments]
        pipe = subprocess.PIPE
        program = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        self.addCleanup(program.stdin.close)
        self.addCleanup(program.stdout.close)
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        return program


class Waiter:
    """A thread that acquires, and reports when it waits and what came of it."""

    def __init__(self, acquisition_of):
        self.waits = threading.Event()
        self._acquisition = acquisition_of(lambda event: self.waits.set())
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            self._result = self._acquisition.acquire()
        except baton.BatonError as error:
            self._result = error

    def result(self):
        self._thread.join(PATIENCE)
        return self._result


class Clock:
    """The clock of leases, as a test sets it."""

    def __init__(self, case, now_ns=10**12):
        self.now_ns = now_ns
        case.addCleanup(setattr, _held, "now_ns", _held.now_ns)
        _held.now_ns = lambda: self.now_ns

    def advance(self, seconds):
        self.now_ns += int(seconds * 10**9)


class ScriptedAgent:
    """An agent that answers each request with what `answer(url, send)` sends."""

    def __init__(self, case, answer):
        folder = tempfile.mkdtemp(prefix="baton")
        self.socket = os.path.join(folder, "sock")
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.socket)
        self._listener.listen()
        case.addCleanup(shutil.rmtree, folder)
        case.addCleanup(self._listener.close)
        case.addCleanup(self._listener.shutdown, socket.SHUT_RDWR)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection:
            request = connection.recv(1 << 16)
            try:
                self._answer(request.split(b" ")[1].decode(), connection.sendall)
            except OSError:
                pass  # The client has gone.


class KeepingAgent(ScriptedAgent):
    """An agent that keeps connections as long as `answer(url, send, ended)` returns true, and
    counts them. `ended` waits for the end of the request's body."""

    count = 0

    def _serve(self, connection):
        self.count += 1
        with connection, connection.makefile("rb") as file:
            while self._exchange(file, connection.sendall):
                pass

    def _exchange(self, file, send):
        request = file.readline().split(b" ")
        fields = b"".join(iter(file.readline, b"\r\n")).lower() if len(request) > 1 else b""
        if b"content-length: " in fields:
            file.read(int(fields.split(b"content-length: ")[1].split(b"\r")[0]))
        elif fields:
            file.read(int(file.readline(), 16) + 2)
        try:
            ended = lambda: file.readline() == file.read(2) == b""  # noqa: E731
            return bool(fields) and self._answer(request[1].decode(), send, ended)
        except OSError:
            return False  # The client has gone.
