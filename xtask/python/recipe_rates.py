"""How many times a second a recipe of kazoo goes through a cycle, over all clients.

Arguments: servers, path, recipe, clients, seconds of warm-up, seconds to measure. Prints one JSON object. Each client has a
session.
"""

import json
import sys
import threading
import time

from kazoo.client import KazooClient

ITEM = b"v" * 100
# When the last leader began to resign.
RESIGNED = [time.monotonic()]


def lock(client, path):
    lock = client.Lock(path)

    def cycle():
        with lock:
            pass

    return cycle


def election(client, path):
    """Each leader resigns at once. A cycle takes from one's resignation to the call of the next."""
    election = client.Election(path)
    waited = [0.0]

    def lead():
        waited[0] = time.monotonic() - RESIGNED[0]
        RESIGNED[0] = time.monotonic()

    def cycle():
        election.run(lead)
        return waited[0]

    return cycle


def queue(client, path):
    queue = client.Queue(path)

    def cycle():
        queue.put(ITEM)
        while queue.get() is None:
            pass

    return cycle


def locking_queue(client, path):
    queue = client.LockingQueue(path)

    def cycle():
        queue.put(ITEM)
        while queue.get(1) is None or not queue.consume():
            pass

    return cycle


RECIPES = {"lock": lock, "handoff": lock, "election": election, "queue": queue, "locking-queue": locking_queue}


def repeat(cycle, begin, end, taken):
    """Adds the time of each cycle between these two moments, in seconds."""
    while (begun := time.monotonic()) < end:
        took = cycle()
        ended = time.monotonic()
        if begun > begin and ended < end:
            taken.append(took or ended - begun)


def main():
    servers, path, recipe, clients, warm_up, seconds = sys.argv[1:]
    sessions = [KazooClient(hosts=servers, timeout=30) for _ in range(int(clients))]
    for session in sessions:
        session.start()
    cycles = [RECIPES[recipe](session, path) for session in sessions]
    begin = time.monotonic() + float(warm_up)
    end = begin + float(seconds)
    taken = []
    threads = [threading.Thread(target=repeat, args=(cycle, begin, end, taken)) for cycle in cycles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sessions[0].delete(path, recursive=True)
    for session in sessions:
        session.stop()
    taken.sort()

    def at(part):
        return taken[min(int(len(taken) * part), len(taken) - 1)] * 1e6

    print(json.dumps({"ops_per_second": len(taken) / float(seconds), "p50_us": at(0.5), "p99_us": at(0.99)}))


main()
