"""HTTP with JSON on a unix socket, one request at a time on a connection.

Everything that waits is a coroutine. On a `Link`, which blocks its thread, a coroutine never
suspends, so that `complete` can run it without an event loop; on an `AsyncLink` asyncio runs it.
"""

import asyncio
import base64
import contextlib
import json
import os
import re
import socket
import threading
import time
from typing import Any, Coroutine, Dict, List, Optional, Tuple, Type, TypeVar, Union, cast
from urllib.parse import quote

from .errors import BatonError, Lost, NotAcquired, Refused, Unavailable, Unknown

Data = Union[str, bytes]
Json = Dict[str, Any]
Seconds = Optional[float]
Call = Tuple[str, str, Json]
T = TypeVar("T")

CALL_LIMIT = 60.0
"""Longest wait for an answer in seconds, beyond what the caller wants to wait."""
_IDLE_LIMIT = 30.0
"""Longest time for which a connection is kept; the agent ends it after a minute."""
_MAX_IDLE = 8
_idle: Dict[str, List[Tuple[float, socket.socket]]] = {}
_KINDS = {"not_acquired": NotAcquired, "unavailable": Unavailable, "lost": Lost, "unknown": Unknown}


def complete(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that blocks where it waits."""
    try:
        work.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    raise RuntimeError("a coroutine of a blocking link has suspended")


def route(kind: str, path: str, rest: str = "") -> str:
    """Returns the URL of a znode path."""
    if not path.startswith("/") or path == "/":
        raise Refused(repr(path), "not a znode path", "give one like /deploy")
    # The agent refuses what is not UTF-8.
    return f"/v1/{kind}{quote(path, errors='surrogatepass')}{rest}"


def milliseconds(name: str, seconds: Seconds) -> Optional[int]:
    """Returns a time in whole milliseconds, 0 only for 0."""
    if seconds is None:
        return None
    if not 0 <= seconds < 1e12:
        raise Refused(name, f"{seconds!r} is not a time in seconds", "give 0 or more")
    return max(int(seconds * 1000), 1 if seconds else 0)


def times(**seconds: Seconds) -> Json:
    """Returns the fields of times: that of `wait` is `wait_ms`."""
    return {f"{name}_ms": milliseconds(name, value) for name, value in seconds.items()}


def payload(data: Data) -> Json:
    """Returns the fields of data: text, or bytes in base64."""
    if isinstance(data, str):
        return {"data": data}
    return {"data_base64": base64.b64encode(data).decode("ascii")}


def _encode(call: Call) -> bytes:
    method, url, fields = call
    try:
        body = json.dumps({k: v for k, v in fields.items() if v is not None}, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Refused(url, str(error), "give values that JSON has") from None
    framing = f"Content-Length: {len(body)}\r\n\r\n{body}"
    if method == "PUT":  # The body goes on, and its end releases.
        framing = f"Transfer-Encoding: chunked\r\n\r\n{len(body) + 1:x}\r\n{body}\n\r\n"
    return f"{method} {url} HTTP/1.1\r\nHost: localhost\r\n{framing}".encode("ascii")


class AgentSilent(Unavailable):
    """The agent does not answer, or not as one."""

    def __init__(self, agent: str, cause: object) -> None:
        super().__init__(agent, f"no answer of the agent: {cause}", "start it: baton agent")
        self.since = time.time()


class _Answer:
    """Parser of one response: a head, and an object a line until its end."""

    def __init__(self) -> None:
        self._raw, self._text, self._status = bytearray(), bytearray(), 0
        self._is_chunked, self._length = False, -1
        self.is_over, self.is_last = False, True

    def feed(self, data: bytes) -> List[Json]:
        """Returns the objects that these bytes complete, no bytes for the end; raises the error
        that they name."""
        self._raw += data
        if len(self._raw) + len(self._text) > 16 << 20:
            raise ValueError("the answer is too large")
        if not self._status:
            self._head()
        if self._status and not self.is_over:
            self._body()
        is_end = self.is_over or not data
        lines = self._text.split(b"\n")
        self._text = bytearray() if is_end else lines.pop()
        found = [json.loads(line) for line in lines if line.strip()]
        if not all(isinstance(it, dict) for it in found):
            raise ValueError("the answer is not an object")
        if is_end and not found:
            if self._status < 400:
                raise EOFError("the agent has ended the connection")
            found = [{"thing": f"HTTP status {self._status}"}]
        for it in found:
            if it.get("event") == "error" or self._status >= 400:
                raise _failure(it, self._status)
        return found

    def _head(self) -> None:
        head, end, rest = self._raw.partition(b"\r\n\r\n")
        if end:
            if not head.startswith(b"HTTP/1."):
                raise ValueError("the answer is not HTTP")
            self._raw, self._status = rest, int(head[9:12])
            fields = bytes(head).lower()
            self.is_last = head[7:8] == b"0" or b"\r\nconnection: close" in fields
            self._is_chunked = b"\r\ntransfer-encoding: chunked" in fields
            length = re.search(rb"\r\ncontent-length: *(\d+)", fields)
            # Without either the body lasts as long as the connection.
            self._length = int(length[1]) if length else -1

    def _body(self) -> None:
        """Takes the text out of its framing; a chunk, or a body of known length, once it is whole.
        """
        while self._is_chunked and not self.is_over and b"\r\n" in self._raw:
            size, _, rest = self._raw.partition(b"\r\n")
            count = int(size.partition(b";")[0], 16)
            if len(rest) < count + 2:  # With the end of its line.
                return
            self._text += rest[:count]
            self._raw, self.is_over = rest[count + 2:], count == 0
        if not self._is_chunked and len(self._raw) >= self._length:
            self.is_over = self._length >= 0
            count = self._length if self.is_over else len(self._raw)
            self._text += self._raw[:count]
            del self._raw[:count]

    def is_reusable(self) -> bool:
        """Whether another request may follow on the connection."""
        return self.is_over and not self.is_last and not self._raw


def _failure(answer: Json, status: int) -> BatonError:
    kind = _KINDS.get(str(answer.get("code")), Refused)
    thing, cause, next_step = (str(answer.get(it, "")) for it in ("thing", "cause", "next_step"))
    if status == 405:
        next_step = "upgrade the agent, which is older than this client"
    # An agent does not remember what has ended: a guard that it does not know is a lost one.
    error = (Lost if thing.startswith("guard ") else kind)(thing, cause, next_step)
    silence = answer.get("unavailable_for_ms")
    if isinstance(error, NotAcquired):
        error.held_by = answer.get("held_by")
    elif isinstance(error, Unavailable) and silence is not None:
        error.since = time.time() - silence / 1000
    return error


class Link:
    """Connection that blocks the thread that waits."""

    def __init__(self, agent: str, is_open: bool) -> None:
        self.agent, self.answer, self._pid, self._is_open = agent, _Answer(), os.getpid(), is_open
        self.found: List[Json] = []  # Objects that have come and that nobody has received.

    @classmethod
    async def open(cls, agent: Optional[str], call: Call, limit: Seconds = CALL_LIMIT) -> "Link":
        """Sends a request, to the agent of a socket, or else to this user's or the machine's.
        Starts this user's, which ends when nobody uses it, where neither listens."""
        if agent is not None:
            return await cls._dial(agent, call, limit)
        folder = os.environ.get("XDG_RUNTIME_DIR") if os.geteuid() != 0 else None
        agents = [os.path.join(it, "baton", "agent.sock") for it in (folder, "/run") if it]
        for agent in agents:
            # A dead agent's is still there, and one may be another's.
            with contextlib.suppress(AgentSilent):
                return await cls._dial(agent, call, limit)
        # Where this fails, the error of the request names the socket.
        os.system("exec baton agent --background </dev/null >/dev/null 2>&1")
        return await cls._dial(agents[0], call, limit)

    @classmethod
    async def _dial(cls, agent: str, call: Call, limit: Seconds) -> "Link":
        data, link = _encode(call), cls(agent, call[0] == "PUT")
        try:
            await link._connect(limit)
            link._send(data)
            return link
        except OSError as error:
            link.close()
            raise AgentSilent(agent, error) from None

    async def _connect(self, limit: Seconds) -> None:
        kept = _take_idle(self.agent)
        self.socket = kept or socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(limit)
        if not kept:
            self.socket.connect(self.agent)

    def _send(self, data: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # The agent answers before it has read all.
            self.socket.sendall(data)

    async def receive(self, limit: Seconds) -> Json:
        """Waits for an object; with a limit of 0 returns an empty one if none is there. Raises the
        error that the agent names, or `AgentSilent`."""
        try:
            while not self.found:
                self.found = self.answer.feed(await self._receive(limit))
            return self.found.pop(0)
        except BlockingIOError:
            return {}
        except (OSError, EOFError, ValueError) as error:
            raise AgentSilent(self.agent, error) from None

    async def _receive(self, limit: Seconds) -> bytes:
        self.socket.settimeout(limit)
        return self.socket.recv(1 << 16)

    def end_body(self) -> None:
        """Ends the request, and so what it holds."""
        if self._is_open:
            self._is_open = False
            self._send(b"0\r\n\r\n")

    def give_back(self) -> None:
        """Keeps the connection for another request, if the answer to this one has ended."""
        kept = _idle.setdefault(self.agent, [])
        with contextlib.suppress(OSError):
            if self.answer.is_reusable() and self._pid == os.getpid() and len(kept) < _MAX_IDLE:
                self.end_body()
                self.socket.settimeout(0)
                return kept.append((time.monotonic(), self.socket))
        self.close()

    def close(self) -> None:
        """Closes the connection; in a forked child the child's end of it."""
        self.socket.close()


def _take_idle(agent: str) -> Optional[socket.socket]:
    """Returns a connection that was kept, and that the agent has not ended."""
    with contextlib.suppress(KeyError, IndexError):  # Another thread may have taken the last one.
        while True:
            since, kept = _idle[agent].pop()
            if time.monotonic() - since < _IDLE_LIMIT:
                with contextlib.suppress(ConnectionError):
                    try:
                        kept.recv(1, socket.MSG_PEEK)
                    except BlockingIOError:
                        return kept
            kept.close()
    return None


def _close_idle() -> None:
    for links in _idle.values():
        for _, kept in links:
            kept.close()
    _idle.clear()


# A child that had a connection of its parent's would keep what the parent holds by it later.
os.register_at_fork(after_in_child=_close_idle)


class AsyncLink(Link):
    """Connection that suspends the task that waits."""

    async def _connect(self, limit: Seconds) -> None:
        self._reader, self._writer = await asyncio.open_unix_connection(self.agent)

    def _send(self, data: bytes) -> None:
        self._writer.write(data)

    async def _receive(self, limit: Seconds) -> bytes:
        # Not asyncio.wait_for, which may swallow a cancellation before Python 3.12.
        loop, abort = asyncio.get_running_loop(), self._writer.transport.abort
        timer = loop.call_later(threading.TIMEOUT_MAX if limit is None else limit, abort)
        try:
            return await self._reader.read(1 << 16)
        finally:
            timer.cancel()

    def close(self) -> None:
        if hasattr(self, "_writer") and self._pid == os.getpid():
            self._writer.close()

    give_back = close


async def ask(kind: Type[Link], agent: Optional[str], call: Call,
              limit: Seconds = CALL_LIMIT) -> Json:
    """Sends a request and returns its answer."""
    link = await kind.open(agent, call, limit)
    try:
        return await link.receive(limit)
    except AgentSilent as error:
        if call[0] == "GET":
            raise
        raise Unknown(" ".join(call[:2]), error.cause, "read before you repeat it") from None
    finally:
        link.give_back()
