"""One client of kazoo that connects, does one thing, and prints what became of it as the last line: done, no-auth or refused.

security_client.py SERVER PATIENCE_MS ACT PATH [--ca FILE] [--cert FILE --key FILE] [--digest USER:PASSWORD] [--sasl USER:PASSWORD]
"""

import argparse
import logging
import os
import sys

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionClosedError, ConnectionLoss, NoAuthError, SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import CREATOR_ALL_ACL

logging.disable(logging.CRITICAL)


def arguments():
    parser = argparse.ArgumentParser()
    for name in ("server", "patience", "act", "path"):
        parser.add_argument(name)
    for name in ("--ca", "--cert", "--key", "--digest", "--sasl"):
        parser.add_argument(name)
    return parser.parse_args()


def connect(args):
    options = {}
    if args.ca:
        options.update(use_ssl=True, verify_certs=True, check_hostname=True, ca=args.ca)
        options.update(certfile=args.cert, keyfile=args.key)
    if args.digest:
        options["auth_data"] = [("digest", args.digest)]
    if args.sasl:
        user, password = args.sasl.split(":", 1)
        options["sasl_options"] = {"mechanism": "DIGEST-MD5", "username": user, "password": password}
    client = KazooClient(hosts=args.server, timeout=30, **options)
    client.start(timeout=int(args.patience) / 1000)
    return client


def act(client, args):
    if args.act == "open":
        client.create(args.path, b"data")
        client.get(args.path)
        client.delete(args.path)
    elif args.act == "own":
        client.create(args.path, b"data", acl=CREATOR_ALL_ACL)
    else:
        client.get(args.path)


def main():
    args = arguments()
    refused = (KazooTimeoutError, AuthFailedError, ConnectionClosedError, ConnectionLoss, SessionExpiredError)
    try:
        act(connect(args), args)
        outcome = "done"
    except NoAuthError:
        outcome = "no-auth"
    except refused:
        outcome = "refused"
    print(outcome)
    sys.stdout.flush()
    # Clients that were refused go on with their threads.
    os._exit(0)


if __name__ == "__main__":
    main()
