"""One process of kazoo, which reads commands on standard input and reporting on standard output.

See xtask/src/peer/mod.rs for the lines. Every line printed has the instant of CLOCK_MONOTONIC at which it was true, so that
lines of several processes on one machine can be compared. Ends at once when its standard input does.
"""

import os
import queue
import random
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState

COMMANDS = queue.Queue()
STOPPED = threading.Event()
PRINTING = threading.Lock()


def say(event, nanos, rest=""):
    with PRINTING:
        sys.stdout.write(f"{event} {nanos} {rest}\n")
        sys.stdout.flush()


def now():
    return time.monotonic_ns()


class Notified:
    """A session, and whether its holder was notified that something is wrong with it."""

    def __init__(self, servers, timeout):
        self.notified = False
        self.client = KazooClient(hosts=servers, timeout=timeout)
        self.client.add_listener(self._changed)
        self.client.start(timeout=30)

    def _changed(self, state):
        if state in (KazooState.SUSPENDED, KazooState.LOST):
            self.notified = True
            say("notified", now(), state)


class Lock:
    def __init__(self, lock):
        self.lock = lock

    def acquire(self):
        if not self.lock.acquire():
            raise RuntimeError("not acquired")

    def release(self):
        self.lock.release()

    def held(self):
        return self.lock.is_acquired


class Election:
    """Leads from the call of the function until released."""

    def __init__(self, election):
        self.election = election
        self.thread = None
        self.elected = None
        self.enough = None
        self.leads = False

    def acquire(self):
        self.elected, self.enough = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.election.run, args=(self._lead,), daemon=True)
        self.thread.start()
        self.elected.wait()

    def _lead(self):
        self.leads = True
        self.elected.set()
        self.enough.wait()
        self.leads = False

    def release(self):
        self.enough.set()
        self.thread.join()

    def held(self):
        return self.leads


class Items:
    def __init__(self, items, locking):
        self.items = items
        self.locking = locking

    def put(self, item):
        self.items.put(item.encode())

    def take(self, millis):
        if self.locking:
            item = self.items.get(millis / 1000)
            if item is not None and not self.items.consume():
                return None
        else:
            item = self.items.get()
            if item is None:
                time.sleep(min(millis, 20) / 1000)
                item = self.items.get()
        return None if item is None else item.decode()


def barrier(made):
    def run(command, _):
        {"set": made.create, "clear": made.remove, "wait": made.wait}[command]()
        return ""

    return run


def double_barrier(made):
    def run(command, _):
        {"enter": made.enter, "leave": made.leave}[command]()
        return ""

    return run


def counter(made):
    def run(_, argument):
        nonlocal made
        for _ in range(int(argument or 0)):
            # Gives the counter back.
            made += 1
        return str(made.value)

    return run


def party(made):
    def run(command, _):
        if command == "join":
            made.join()
        elif command == "quit":
            made.leave()
        return ",".join(sorted(made))

    return run


def open_recipe(session, recipe, path, name):
    client = session.client
    return {
        "kazoo-lock": lambda: Lock(client.Lock(path, name)),
        "kazoo-read": lambda: Lock(client.ReadLock(path, name)),
        "kazoo-write": lambda: Lock(client.WriteLock(path, name)),
        "kazoo-election": lambda: Election(client.Election(path, name)),
        "kazoo-queue": lambda: Items(client.Queue(path), False),
        "kazoo-locking-queue": lambda: Items(client.LockingQueue(path), True),
        "kazoo-barrier": lambda: barrier(client.Barrier(path)),
        "kazoo-double-barrier": lambda: double_barrier(client.DoubleBarrier(path, 3, name)),
        "kazoo-counter": lambda: counter(client.Counter(path)),
        "kazoo-counter-curator": lambda: counter(client.Counter(path, support_curator=True)),
        "kazoo-party": lambda: party(client.Party(path, name)),
    }[recipe]()


def act(turn, session, belief, interval):
    """Does something every so often while it believes that it may: nobody notified it otherwise, or its lock says so."""
    STOPPED.clear()
    while not STOPPED.is_set():
        at = now()
        if session.notified if belief == "notified" else not turn.held():
            break
        say("act", at, 0)
        time.sleep(interval / 1000)
    say("done", now(), "act")


def turns(turn, lane, hold, think):
    while not STOPPED.is_set():
        turn.acquire()
        say("enter", now(), lane)
        time.sleep(random.uniform(0, hold) / 1000)
        say("leave", now(), lane)
        turn.release()
        time.sleep(random.uniform(0, think) / 1000)


def crowd(size, hold, think, servers, recipe, path, name, timeout):
    STOPPED.clear()
    for lane in range(size):
        turn = open_recipe(Notified(servers, timeout), recipe, path, name)
        threading.Thread(target=turns, args=(turn, lane, hold, think), daemon=True).start()


def obey(words, made, session, args):
    command, rest = words[0], words[1:]
    if command == "acquire":
        made.acquire()
        say("enter", now(), 0)
    elif command == "release":
        say("leave", now(), 0)
        made.release()
        say("released", now(), 0)
    elif command == "held":
        say("held", now(), str(bool(made.held())).lower())
    elif command == "act":
        threading.Thread(target=act, args=(made, session, rest[0], int(rest[1])), daemon=True).start()
    elif command == "loop":
        STOPPED.clear()
        turns(made, 0, int(rest[0]), int(rest[1]))
        say("done", now(), "loop")
    elif command == "crowd":
        crowd(*(int(word) for word in rest), *args)
    elif command == "put":
        made.put(rest[0])
        say("put", now(), rest[0])
    elif command == "drain":
        STOPPED.clear()
        while not STOPPED.is_set():
            item = made.take(100)
            if item is not None:
                say("item", now(), item)
        say("done", now(), "drain")
    else:
        say("done", now(), f"{command} {made(command, rest[0] if rest else '')}")


def read():
    for line in sys.stdin:
        words = line.split()
        if words == ["stop"]:
            STOPPED.set()
        elif words:
            COMMANDS.put(words)
    os._exit(0)


def main():
    servers, recipe, path, name, timeout = sys.argv[1:]
    threading.Thread(target=read, daemon=True).start()
    session = Notified(servers, int(timeout) / 1000)
    made = open_recipe(session, recipe, path, name)
    say("ready", now())
    while True:
        words = COMMANDS.get()
        try:
            obey(words, made, session, (servers, recipe, path, name, int(timeout) / 1000))
        except Exception as error:
            say("error", now(), f"{words[0]}: {error!r}".replace("\n", " "))


main()
