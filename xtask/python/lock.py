"""How many times a second kazoo's Lock is acquired and released, over all clients.

Arguments: servers, path, clients, seconds of warm-up, seconds to measure. Prints one JSON object. Each client has a session.
"""

import json
import sys
import threading
import time

from kazoo.client import KazooClient


def contend(client, path, begin, end, taken):
    """Adds the time of each acquire and release between these two moments, in seconds."""
    lock = client.Lock(path)
    while (begun := time.monotonic()) < end:
        with lock:
            pass
        ended = time.monotonic()
        if begun > begin and ended < end:
            taken.append(ended - begun)


def main():
    servers, path, clients, warm_up, seconds = sys.argv[1:]
    sessions = [KazooClient(hosts=servers, timeout=30) for _ in range(int(clients))]
    for session in sessions:
        session.start()
    begin = time.monotonic() + float(warm_up)
    end = begin + float(seconds)
    taken = []
    threads = [threading.Thread(target=contend, args=(session, path, begin, end, taken)) for session in sessions]
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
