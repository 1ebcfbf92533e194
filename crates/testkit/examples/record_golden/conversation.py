"""Says to a server what kazoo can say, once. Run by the recorder; the argument is HOST:PORT."""

import sys

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.protocol.states import WatchedEvent  # noqa: F401
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl


def fails(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except KazooException:
        return
    raise SystemExit("a call that must fail did not")


zk = KazooClient(hosts=sys.argv[1], timeout=3, auth_data=[("digest", "user:secret")])
zk.start()
zk.create("/k", b"data")
zk.create("/k/stat", b"", include_data=True)
zk.create("/k/eph", b"", ephemeral=True)
zk.create("/k/lock-", b"", ephemeral=True, sequence=True)
fails(zk.create, "/k", b"")
zk.exists("/k/none", watch=lambda event: None)
zk.create("/k/none", b"x", acl=[make_digest_acl("user", "secret", all=True)])
zk.get("/k", watch=lambda event: None)
zk.set("/k", b"new", version=0)
fails(zk.set, "/k", b"new", version=9)
zk.get_children("/k", watch=lambda event: None)
zk.get_children("/k", include_data=True)
zk.get_acls("/k/none")
zk.set_acls("/k/stat", OPEN_ACL_UNSAFE)
zk.sync("/k")
good = zk.transaction()
good.create("/k/t", b"1")
good.check("/k", -1)
good.set_data("/k/t", b"2")
good.delete("/k/t")
good.commit()
bad = zk.transaction()
bad.create("/k/t", b"1")
bad.delete("/k/absent")
bad.check("/k", -1)
bad.commit()
zk.delete("/k/none")
fails(zk.delete, "/k")
zk.stop()
zk.close()
