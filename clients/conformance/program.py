"""Carries out the commands of the conformance suite with the client for Python."""

import json
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))

import baton  # noqa: E402

agent = baton.Agent(*sys.argv[1:])
held = {}
turn = threading.Lock()


def say(event, **fields):
    with turn:
        print(json.dumps({"event": event, **fields}), flush=True)


def seconds(command, name):
    return None if name not in command else command[name] / 1000


def keep(id, acquisition):
    found = held[id] = acquisition.acquire()
    fields = {"token": getattr(found, "token", 0), "term": getattr(found, "term", None)}
    if isinstance(found, baton.Item):
        fields.update(data=found.data.decode(), attempt=found.attempt)
    say("held", id=id, guard=getattr(found, "id", ""), **fields)
    found.on_lost(lambda: say("lost", id=id))


def lock_of(command):
    return agent.lock(command["path"], mode=command.get("mode"), slots=command.get("slots"),
                      wait=seconds(command, "wait"), name=command.get("name"),
                      session_timeout=seconds(command, "timeout"),
                      on_wait=lambda it: say("waiting", id=command["id"], place=it["place"]))


def cycle(path, count, log):
    file = os.open(log, os.O_WRONLY | os.O_APPEND)
    for _ in range(count):
        with agent.lock(path) as guard:
            os.write(file, b"begin python %d\n" % guard.token)
            guard.check()
            os.write(file, b"end python %d\n" % guard.token)


def turns(path, count):
    """Returns the nanoseconds of each lock and its release."""
    times = []
    for _ in range(count):
        begin = time.monotonic_ns()
        agent.lock(path).acquire().release()
        times.append(time.monotonic_ns() - begin)
    return times


def checks(found, count):
    """Returns the nanoseconds of one check."""
    begin = time.monotonic_ns()
    for _ in range(count):
        found.check()
    return (time.monotonic_ns() - begin) / count


def act(found, log):
    """Adds its token and an instant at which the lock was held still."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND)
    while True:
        now = time.monotonic_ns()
        if not is_held(found):
            return
        os.write(file, b"python %d %d\n" % (found.token, now))
        time.sleep(0.005)


def is_held(found):
    try:
        found.check()
        return True
    except baton.Lost:
        return False


def carry_out(command):
    do, id, path = command["do"], command["id"], command.get("path")
    if do == "lock":
        keep(id, lock_of(command))
    elif do == "elect":
        keep(id, agent.elect(path))
    elif do == "take":
        keep(id, agent.queue(path).take(wait=seconds(command, "wait")))
    elif do == "join":
        keep(id, agent.join(path, command["name"]))
    elif do == "check":
        say("check", id=id, held=is_held(held[id]))
    else:
        result = None
        if do == "release":
            held[id].release()
        elif do == "leave":
            baton._http.complete(held[id]._leave(True))
        elif do == "create":
            held[id].txn([{"op": "create", "path": path, "data": command["data"]}])
        elif do == "ack":
            held[id].ack()
        elif do == "nack":
            held[id].nack("again")
        elif do == "put":
            agent.queue(path).put(command["data"])
        elif do == "add":
            result = agent.counter(path).add(command["delta"])
        elif do == "hold":
            result = agent.hold(path, seconds(command, "ttl"))
        elif do == "release_hold":
            agent.release_hold(path, command["token"])
        elif do == "current":
            result = agent.token_is_current(path, command["token"])
        elif do == "members":
            views = iter(agent.members(path))
            result = sorted(it["id"] for it in next(views))
            views.close()
        elif do == "cycle":
            cycle(path, command["count"], command["log"])
        elif do == "turns":
            result = turns(path, command["count"])
        elif do == "checks":
            result = checks(held[id], command["count"])
        elif do == "act":
            act(held[id], command["log"])
        elif do == "many":
            for number in range(command["count"]):
                held[f"{id}{number}"] = agent.lock(f"{path}/{number}").acquire()
        say("done", id=id, result=result)


def run(command):
    try:
        carry_out(command)
    except baton.BatonError as error:
        kinds = (it.__name__ for it in type(error).__mro__ if it.__module__ == "baton.errors")
        say("error", id=command["id"], kind=next(kinds), text=str(error),
            held_by=getattr(error, "held_by", None))


for line in sys.stdin:
    threading.Thread(target=run, args=(json.loads(line),), daemon=True).start()
