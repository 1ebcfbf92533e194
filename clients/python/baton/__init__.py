"""Locks, elections, queues, membership and counters of Baton, through the agent of this machine.

    import baton

    with baton.lock("/deploy") as guard:
        guard.check()  # before each side effect: raises LockLost once the lock is held no longer

Times are seconds. `wait` is how long to wait: `None` for ever, 0 not at all. The functions of this
module use this user's agent; an `Agent` uses the one of a given socket.
"""

import contextlib
from typing import AsyncIterator, Iterator, List, Optional

from ._held import Acquisition, AsyncGuard, AsyncItem, Guard, Item, Membership, OnWait
from ._http import (CALL_LIMIT, AsyncLink, Call, Data, Json, Link, Seconds, ask, complete, payload,
                    route, times)
from .errors import BatonError, LockLost, Lost, NotAcquired, Refused, Unavailable, Unknown

__all__ = [
    "Agent", "AsyncGuard", "AsyncItem", "BatonError", "Counter", "Guard", "Item", "LockLost",
    "Lost", "Members", "Membership", "NotAcquired", "Queue", "Refused", "Unavailable", "Unknown",
    "counter", "elect", "health", "hold", "join", "lock", "members", "queue", "release_hold",
    "token_is_current",
]

Lock = Acquisition[Guard, AsyncGuard]


class Agent:
    """The agent that listens on `socket`: by default this user's, or else the machine's."""

    def __init__(self, socket: Optional[str] = None) -> None:
        self.socket = socket

    def lock(self, path: str, *, mode: Optional[str] = None, slots: Optional[int] = None,
             wait: Seconds = None, session_timeout: Seconds = None, name: Optional[str] = None,
             lock_delay: Seconds = None, on_wait: OnWait = None) -> Lock:
        """A lock for `with` and `async with`: exclusive, or of `mode` `read` or `write`, or one of
        several `slots`. `on_wait` receives each `waiting` event: `place` and `held_by`."""
        fields = {"mode": mode or (None if slots is None else "slot"), "slots": slots, "name": name,
                  **times(wait=wait, session_timeout=session_timeout, lock_delay=lock_delay)}
        call = "PUT", route("lock", path), fields
        return Acquisition(self.socket, path, call, Guard, AsyncGuard, on_wait)

    def elect(self, path: str, *, data: Data = "", wait: Seconds = None,
              session_timeout: Seconds = None, name: Optional[str] = None,
              on_wait: OnWait = None) -> Lock:
        """Leadership for `with` and `async with`. Watchers of the election see `data`."""
        fields = {"name": name, **payload(data),
                  **times(wait=wait, session_timeout=session_timeout)}
        call = "PUT", route("elect", path), fields
        return Acquisition(self.socket, path, call, Guard, AsyncGuard, on_wait)

    def queue(self, path: str) -> "Queue":
        """The work queue at a path."""
        return Queue(self, path)

    def counter(self, path: str) -> "Counter":
        """The counter at a path."""
        return Counter(self, path)

    def join(self, path: str, id: str, data: Data = "", *, session_timeout: Seconds = None
             ) -> "Acquisition[Membership, Membership]":
        """Membership for `with` and `async with`."""
        fields = {"id": id, **payload(data), **times(session_timeout=session_timeout)}
        call = "PUT", route("member", path), fields
        return Acquisition(self.socket, path, call, Membership, Membership)

    def members(self, path: str) -> "Members":
        """The members at a path, for `for` and `async for`: a list at each change."""
        return Members(self.socket, ("GET", route("member", path), {}))

    def hold(self, path: str, ttl: float, *, token: Optional[int] = None, wait: Seconds = None,
             name: Optional[str] = None) -> int:
        """Holds an exclusive lock for `ttl` seconds, beyond the end of this process, and returns
        its token. With the token of such a lock it goes on being held."""
        fields = {"token": token, "lock": {"name": name, **times(wait=wait)}, **times(ttl=ttl)}
        limit = None if wait is None else wait + CALL_LIMIT
        return int(self._ask("POST", route("hold", path), fields, limit)["token"])

    def release_hold(self, path: str, token: int) -> None:
        """Releases a lock that `hold` holds, from any process of this user."""
        self._ask("DELETE", route("hold", path, f"?token={token:d}"))

    def token_is_current(self, path: str, token: int) -> bool:
        """Whether a token is that of the present holder."""
        return bool(self._ask("GET", route("token", path, f"/{token:d}"))["current"])

    def health(self) -> Json:
        """State of the agent and of its sessions."""
        return self._ask("GET", "/v1/health")

    def _ask(self, method: str, url: str, fields: Optional[Json] = None,
             limit: Seconds = CALL_LIMIT) -> Json:
        return complete(ask(Link, self.socket, (method, url, fields or {}), limit))


class _AtPath:
    def __init__(self, agent: Agent, path: str) -> None:
        self._agent, self._path = agent, path


class Queue(_AtPath):
    """Work queue."""

    def put(self, data: Data, *, priority: Optional[int] = None, delay: Seconds = None,
            id: Optional[str] = None, max_attempts: Optional[int] = None) -> Json:
        """Puts an item, and returns the agent's answer."""
        fields = {"priority": priority, "id": id, "max_attempts": max_attempts, **payload(data),
                  **times(delay=delay)}
        return self._agent._ask("POST", route("queue", self._path, "/put"), fields)

    def take(self, *, wait: Seconds = None, visibility: Seconds = None, name: Optional[str] = None
             ) -> "Acquisition[Item, AsyncItem]":
        """An item for `with` and `async with`. The end of the block acknowledges it, and gives it
        back after an exception, unless it was settled before."""
        fields = {"name": name, **times(wait=wait, visibility=visibility)}
        call = "POST", route("queue", self._path, "/take"), fields
        return Acquisition(self._agent.socket, self._path, call, Item, AsyncItem)


class Counter(_AtPath):
    """Counter."""

    def add(self, delta: int = 1) -> int:
        """Adds, and returns the value."""
        call = route("counter", self._path, "/add")
        return int(self._agent._ask("POST", call, {"delta": delta})["value"])

    def get(self) -> int:
        """Returns the value."""
        return int(self._agent._ask("GET", route("counter", self._path))["value"])


class Members:
    """The members at a path: each step is a list of `id`, `data` and `session`."""

    def __init__(self, agent: Optional[str], call: Call) -> None:
        self._agent, self._call = agent, call

    def __iter__(self) -> Iterator[List[Json]]:
        with contextlib.closing(complete(Link.open(self._agent, self._call))) as link:
            while True:
                yield complete(link.receive(None))["members"]

    async def __aiter__(self) -> AsyncIterator[List[Json]]:
        with contextlib.closing(await AsyncLink.open(self._agent, self._call)) as link:
            while True:
                yield (await link.receive(None))["members"]


_agent = Agent()
lock, elect, queue, counter = _agent.lock, _agent.elect, _agent.queue, _agent.counter
join, members, health = _agent.join, _agent.members, _agent.health
hold, release_hold, token_is_current = _agent.hold, _agent.release_hold, _agent.token_is_current
