"""What is held through the agent, and its lease on this process's own clock.

`check` reads one clock and takes no lock, so that no message has to arrive for a lease to end, and
a forked child may check too: there the lease ends where it ended at the fork.
"""

import asyncio
import base64
import collections
import contextlib
import logging
import os
import selectors
import signal
import subprocess
import threading
import time
from typing import (Any, Callable, Coroutine, Deque, Dict, Generic, Mapping, Optional, Sequence,
                    Type, TypeVar)

from ._http import (CALL_LIMIT, AgentSilent, AsyncLink, Call, Json, Link, Seconds, T, ask, complete,
                    payload, route, times)
from .errors import BatonError, Lost, Refused, Unknown

# Runs on while the machine sleeps, so that a sleep never extends a lease.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_NEXT_STEP = "stop what it protects, then acquire it again"
_RELEASED = "it was released"
_LEASE_ENDED = "the lease ended: no server answered in time, or this process was paused"
OnWait = Optional[Callable[[Json], object]]


def now_ns() -> int:
    """Returns the reading of the clock of leases."""
    return time.clock_gettime_ns(_CLOCK)


def boot_id() -> str:
    """Returns the id of this machine's boot; empty where the system has none."""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()
    return ""


class Anchor:
    """A reading of the agent's clock, which it made after this process had read `sent_ns`.

    What ends so long after the agent's reading ends no earlier than so long after `sent_ns`,
    however late a message is. Two clocks of one boot run at one rate, others within 1 %.
    """

    def __init__(self, sent_ns: int, reading: Json) -> None:
        received_ns, self.sent_ns, self.agent_ns = now_ns(), sent_ns, int(reading["now_ns"])
        self.boot_id = str(reading["boot_id"])
        self.is_wide = received_ns - sent_ns > 100_000_000
        is_same_boot = self.boot_id == boot_id() != ""
        self.is_same_clock = is_same_boot and sent_ns <= self.agent_ns <= received_ns

    @classmethod
    async def read(cls, kind: Type[Link], agent: str, limit: Seconds) -> "Anchor":
        """Asks the agent for a reading."""
        sent_ns = now_ns()
        return cls(sent_ns, await ask(kind, agent, ("GET", "/v1/health", {}), limit))

    def deadline(self, lease_until_ns: int) -> int:
        """Returns the end of a lease on this process's clock, never too late."""
        left = lease_until_ns - self.agent_ns
        return self.sent_ns + (left if self.is_same_clock else left * 99 // 100)


class Held:
    """State of something that is held as long as its response is open."""

    _anchor: Anchor
    _until_ns: Optional[int] = None
    _last: Optional[Json] = None
    _reason: Optional[str] = None
    _reader: Optional["asyncio.Task[None]"] = None

    def __init__(self, path: str, link: Link, event: Json) -> None:
        self.path, self._is_over = path, False
        self._link, self._agent, self._kind, self._pid = link, link.agent, type(link), os.getpid()
        self._callbacks: Deque[Callable[[], object]] = collections.deque()
        self._turn = threading.Lock()

    @property
    def lost(self) -> Optional[Lost]:
        """The reason why it is held no longer, if so."""
        if self._reason is None and self._until_ns is not None and now_ns() >= self._until_ns:
            # A lease that has ended stays ended, also if an older message brings a later end.
            self._reason = _LEASE_ENDED
        return None if self._reason is None else Lost(self.path, self._reason, _NEXT_STEP)

    def check(self) -> None:
        """Raises `Lost` unless it is held now, without waiting for anything."""
        if self._reason is not None or self._until_ns is not None and now_ns() >= self._until_ns:
            raise self.lost or Lost(self.path, _LEASE_ENDED, _NEXT_STEP)

    def on_lost(self, function: Callable[[], object]) -> None:
        """Calls a function once when it is lost, not when it is released; at once if it is lost.
        It runs in the thread that reads the agent's messages, or in the event loop."""
        self._callbacks.append(function)
        self._run_callbacks()

    def _run_callbacks(self) -> None:
        while self._is_over and self._callbacks:
            with contextlib.suppress(IndexError):  # Another thread may have taken the last one.
                function = self._callbacks.popleft()
                try:
                    function()
                except Exception:
                    logging.getLogger("baton").exception("%s: a loss's callback failed", self.path)

    def _left(self) -> Seconds:
        return None if self._until_ns is None else max((self._until_ns - now_ns()) / 1e9, 0.001)

    async def _start(self, sent_ns: int, event: Json) -> None:
        """Starts the lease, and reads the events from now on."""
        if "lease_until_ns" in event:
            self._anchor = Anchor(sent_ns, event)
            if self._anchor.is_wide:
                # It has waited: this reading would cost the lease as much.
                self._anchor = await Anchor.read(self._kind, self._agent, CALL_LIMIT)
            self._until_ns = self._anchor.deadline(int(event["lease_until_ns"]))
            self.check()
        if isinstance(self._link, AsyncLink):
            self._reader = asyncio.get_running_loop().create_task(self._read())
        else:
            _watcher.add(self)
            if self._link.found:  # They came with this event: nothing may wake the watcher.
                self._read_ready()

    async def _handle(self, event: Json) -> None:
        kind = event.get("event")
        if kind == "lease":
            if not self._anchor.is_same_clock:
                # The rates of two clocks differ; an old reading would cost more and more.
                with contextlib.suppress(BatonError):
                    self._anchor = await Anchor.read(self._kind, self._agent, self._left())
            until_ns = self._anchor.deadline(int(event["lease_until_ns"]))
            if self._anchor.boot_id == event["boot_id"] and self.lost is None:
                self._until_ns = max(self._until_ns or 0, until_ns)
        elif kind in ("lost", "released", "settled", "unknown"):
            self._last = event
            self._reason = self._reason or str(event.get("reason") or "another request ended it")

    async def _read(self) -> None:
        """Handles the events for asyncio until it is lost; a release cancels this."""
        try:
            while self.lost is None:
                await self._handle(await self._link.receive(self._left()))
        except BatonError as error:
            if self.lost is None:
                self._reason = error.cause
        finally:
            self._reason = self._reason or "the event loop has ended"
            self._end_if_lost()

    def _read_ready(self) -> None:
        """Handles the events that have come, for the thread of all that is held."""
        # Where the turn is taken, another thread releases it and reads the answer; where it has
        # been released, the connection may be another's.
        if self._turn.acquire(blocking=False):
            try:
                while self._reason != _RELEASED and (event := complete(self._link.receive(0))):
                    complete(self._handle(event))
            except BatonError as error:
                self._reason = self._reason or error.cause
            finally:
                self._turn.release()
        self._end_if_lost()

    def _end_if_lost(self) -> float:
        """Ends it once it is lost; returns for how long it is held at most, in seconds."""
        if self.lost is not None and self._reason != _RELEASED:
            _watcher.remove(self)
            self._is_over = True
            self._link.close()
            self._run_callbacks()
        return self._left() or 1

    async def _end(self, call: Optional[Call] = None) -> None:
        """Ends it with a request, or with the end of its own; in a forked child only the child's
        end of the connection."""
        if self._reason == _RELEASED:
            return
        if self.lost is not None:
            raise self.lost
        # Before the request: no check() of another thread is true once it is on its way.
        self._reason = _RELEASED
        if self._pid != os.getpid():
            return self._link.close()
        _watcher.remove(self)
        with self._turn:  # An event that is being handled may still be read.
            try:
                await (ask(self._kind, self._agent, call) if call else self._conclude())
            finally:
                self._link.give_back()

    async def _conclude(self) -> None:
        """Ends the request, and reads the rest of its answer."""
        with contextlib.suppress(AgentSilent, OSError):
            self._link.end_body()
            if self._reader is not None:
                self._reader.cancel()
                await asyncio.wait({self._reader})
            while self._last is None:
                await self._handle(await self._link.receive(CALL_LIMIT))
        last = self._last or {"event": "unknown", "reason": "the agent has not answered"}
        cause = str(last.get("reason") or "no server confirms it")
        if last["event"] == "lost":
            raise Lost(self.path, cause, _NEXT_STEP)
        if last["event"] == "unknown":
            next_step = str(last.get("next_step", "read before you repeat it"))
            raise Unknown(f"release of {self.path}", cause, next_step)

    async def _leave(self, is_clean: bool) -> None:
        """Ends it at the end of its block."""
        await self._end()


class _Watcher:
    """Thread that reads the events of all that threads hold, and notices the ends of leases. No
    release or acquisition wakes it: registering a socket needs no turn of it."""

    def __init__(self) -> None:
        self._held: Dict[int, Held] = {}
        self._turn, self._is_running = threading.Lock(), False

    def add(self, held: Held) -> None:
        with self._turn:
            if not self._is_running:
                self._selector = selectors.DefaultSelector()
                threading.Thread(target=self._run, daemon=True).start()
                self._is_running = True
            self._held[id(held)] = held
            self._selector.register(held._link.socket, selectors.EVENT_READ, held)

    def remove(self, held: Held) -> None:
        with self._turn:
            if self._held.pop(id(held), None):
                self._selector.unregister(held._link.socket)

    def _run(self) -> None:
        due = rests = 0.0
        while rests < 30:
            for key, _ in self._selector.select(max(due - time.monotonic(), 0)):
                key.data._read_ready()
            if time.monotonic() >= due:
                left = [held._end_if_lost() for held in list(self._held.values())]
                due = time.monotonic() + min([1.0, *left])
                with self._turn:
                    rests = 0 if self._held else rests + 1
                    self._is_running = rests < 30


_watcher = _Watcher()


def _forget_held() -> None:
    # The selector's own descriptor is shared with the parent: nothing in it is to be changed.
    global _watcher
    _watcher = _Watcher()


os.register_at_fork(after_in_child=_forget_held)


class _GuardBase(Held):
    def __init__(self, path: str, link: Link, event: Json) -> None:
        super().__init__(path, link, event)
        self.id: str = event["guard"]
        self.token: int = event["token"]
        self.term: Optional[int] = event.get("term")
        self.release_requested = False

    async def _handle(self, event: Json) -> None:
        self.release_requested |= event.get("event") == "release_requested"
        await super()._handle(event)

    async def _txn(self, writes: Sequence[Mapping[str, Any]]) -> None:
        """Applies writes together, as `Guard.txn` does."""
        self.check()
        fields = [dict(write) for write in writes]
        for write in fields:
            write.update(payload(write.pop("data")) if "data" in write else {})
        await ask(self._kind, self._agent, ("POST", f"/v1/guard/{self.id}/txn", {"writes": fields}))


class Guard(_GuardBase):
    """Guard of a lock or of a term of an election, with its fencing `token`, which is greater than
    that of each earlier holder, the number of the `term`, and whether somebody has
    `release_requested`."""

    def txn(self, writes: Sequence[Mapping[str, Any]]) -> None:
        """Applies writes together if the lock is still held: `{"op": "set", "path": …, "data": …}`,
        with `set`, `create`, `delete` or `check`; all but `create` take a `version`."""
        complete(self._txn(writes))

    def release(self) -> None:
        """Releases, and waits until a server has confirmed it. In a forked child it does nothing
        but close the child's end of the connection."""
        complete(self._end())

    def run(self, argv: Sequence[str], **options: Any) -> int:
        """Runs a command in a process group of its own, and returns its exit code.

        Kills the group when the lock is lost or the call is interrupted, and what is left of it at
        the end. Raises `Lost` if the lock is held no longer then. If this process dies first, the
        command keeps the lock.
        """
        options["pass_fds"] = (*options.get("pass_fds", ()), self._link.socket.fileno())
        self.check()
        # What is left of the command might keep what this process holds later.
        self._link.answer.is_last = True
        process = subprocess.Popen(argv, start_new_session=True, **options)
        turn = threading.Lock()

        def kill() -> None:
            with turn, contextlib.suppress(ProcessLookupError):
                if process.returncode is None:
                    os.killpg(process.pid, signal.SIGKILL)

        try:
            self._callbacks.appendleft(kill)
            self._run_callbacks()
            # It stays a zombie, so that nobody else gets its number while it may be killed.
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        finally:
            kill()
            with turn:
                process.wait()
            with contextlib.suppress(ValueError):
                self._callbacks.remove(kill)
        self.check()
        return process.returncode


class AsyncGuard(_GuardBase):
    """Guard of a lock or of a term of an election, for asyncio."""

    txn = _GuardBase._txn

    async def release(self) -> None:
        """Releases, and waits until a server has confirmed it."""
        await self._end()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine, and returns its result. Cancels it when the lock is lost, waits for its
        end, and raises `Lost` then."""
        task = asyncio.ensure_future(work)
        self.on_lost(task.cancel)
        if self.lost is not None:
            task.cancel()
        try:
            return await task
        finally:
            with contextlib.suppress(ValueError):
                self._callbacks.remove(task.cancel)
            if self._is_over or task.cancelled():
                self.check()


class _ItemBase(Held):
    def __init__(self, path: str, link: Link, event: Json) -> None:
        super().__init__(path, link, event)
        self.id: str = event["item"]
        self.token: int = event["token"]
        self.attempt: int = event["attempt"]
        self.data: bytes = base64.b64decode(event["data_base64"])
        self._claim: str = event["claim"]

    def _call(self, action: str, **fields: Any) -> Call:
        return "POST", route("queue", self.path, f"/{action}"), {"claim": self._claim, **fields}

    async def _ack(self) -> None:
        """Removes the item: it is done."""
        await self._end(self._call("ack"))

    async def _nack(self, reason: str = "", delay: Seconds = None) -> None:
        """Gives the item back, as `Item.nack` does."""
        await self._end(self._call("nack", reason=reason, **times(delay=delay)))

    async def _extend(self) -> None:
        """Extends the claim by the time that it had at first."""
        self.check()
        await ask(self._kind, self._agent, self._call("extend"))

    async def _leave(self, is_clean: bool) -> None:
        await (self._ack() if is_clean else self._nack("the consumer has failed"))


class Item(_ItemBase):
    """Claim on an item of a work queue: its `data` and `id`, how often it was taken (`attempt`)."""

    def ack(self) -> None:
        """Removes the item: it is done."""
        complete(self._ack())

    def nack(self, reason: str = "", delay: Seconds = None) -> None:
        """Gives the item back for after `delay`, or to the dead letters after its last attempt."""
        complete(self._nack(reason, delay))

    def extend(self) -> None:
        """Extends the claim by the time that it had at first."""
        complete(self._extend())


class AsyncItem(_ItemBase):
    """Claim on an item of a work queue, for asyncio."""

    ack = _ItemBase._ack
    nack = _ItemBase._nack
    extend = _ItemBase._extend


class Membership(Held):
    """Membership, with `lost` and `on_lost`. It has no lease: its loss may be noticed late."""


S = TypeVar("S", bound=Held)
A = TypeVar("A", bound=Held)
H = TypeVar("H", bound=Held)


class Acquisition(Generic[S, A]):
    """Request for what `with` and `async with` acquire, and end with the block."""

    def __init__(self, agent: Optional[str], path: str, call: Call, blocking: Type[S],
                 suspending: Type[A], on_wait: OnWait = None) -> None:
        self._agent, self._path, self._call, self._on_wait = agent, path, call, on_wait
        self._blocking, self._suspending, self._is_used = blocking, suspending, False
        self._held: Any = None

    def acquire(self) -> S:
        """Acquires, for a caller that releases it itself."""
        return complete(self._acquire(Link, self._blocking))

    async def acquire_async(self) -> A:
        """Acquires, for a caller that releases it itself."""
        return await self._acquire(AsyncLink, self._suspending)

    async def _acquire(self, kind: Type[Link], held_type: Type[H]) -> H:
        wait_ms = self._call[2].get("wait_ms")
        limit = None if wait_ms is None else wait_ms / 1000 + CALL_LIMIT
        sent_ns = now_ns()
        link = await kind.open(self._agent, self._call)
        try:
            event = await link.receive(limit)
            while event.get("event") not in ("held", "item", "joined"):
                if event.get("event") == "waiting" and self._on_wait is not None:
                    self._on_wait(event)
                event = await link.receive(limit)
            held = held_type(self._path, link, event)
            await held._start(sent_ns, event)
            return held
        except BaseException:
            link.give_back()
            raise

    async def _enter(self, kind: Type[Link], held_type: Type[H]) -> H:
        if self._is_used:
            raise Refused(self._path, "in use by another block", "make one for each block")
        self._is_used = True
        try:
            self._held = held = await self._acquire(kind, held_type)
            return held
        finally:
            self._is_used = self._held is not None

    async def _leave(self, is_clean: bool) -> None:
        held, self._held, self._is_used = self._held, None, False
        # An exception of the block matters more than one of the release.
        with contextlib.nullcontext() if is_clean else contextlib.suppress(BatonError):
            await held._leave(is_clean)

    def __enter__(self) -> S:
        return complete(self._enter(Link, self._blocking))

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        complete(self._leave(error is None))

    async def __aenter__(self) -> A:
        return await self._enter(AsyncLink, self._suspending)

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self._leave(error is None)
