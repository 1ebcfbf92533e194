"""How many items a second one client gets from kazoo's LockingQueue and consumes.

Arguments: servers, path, seconds of warm-up, seconds to measure. Prints one JSON object. The queue is kept short, which is where
kazoo is quickest, and the time of putting items in does not count.
"""

import json
import sys
import time

from kazoo.client import KazooClient

STOCK = 50


def turns(queue, seconds):
    """The time of each get and consume, in seconds, for so long in all."""
    taken = []
    spent = 0.0
    while spent < seconds:
        queue.put_all([b"v" * 100] * STOCK)
        for _ in range(STOCK):
            begin = time.monotonic()
            item = queue.get(timeout=10)
            done = item is not None and queue.consume()
            taken.append(time.monotonic() - begin)
            if not done:
                raise SystemExit("an item was not consumed")
        spent += sum(taken[-STOCK:])
    return taken


def main():
    servers, path, warm_up, seconds = sys.argv[1:]
    client = KazooClient(hosts=servers, timeout=30)
    client.start()
    client.delete(path, recursive=True)
    queue = client.LockingQueue(path)
    turns(queue, float(warm_up))
    taken = sorted(turns(queue, float(seconds)))
    client.delete(path, recursive=True)
    client.stop()

    def at(part):
        return taken[min(int(len(taken) * part), len(taken) - 1)] * 1e6

    print(
        json.dumps(
            {
                "ops_per_second": len(taken) / sum(taken),
                "p50_us": at(0.5),
                "p99_us": at(0.99),
            }
        )
    )


main()
