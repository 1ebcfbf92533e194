"""HTTP/1.1 with JSON on a unix socket, one request a connection.

Everything that waits is a coroutine. On a `Link`, which blocks its thread, a coroutine never
suspends, so that `complete` can run it without an event loop; on an `AsyncLink` asyncio runs it.
"""

import asyncio
import base64
import contextlib
import json
import os
import socket
import threading
import time
from typing import Any, Coroutine, Dict, List, Optional, Tuple, Type, TypeVar, Union, cast
from urllib.parse import quote

from .errors import BatonError, Lost, NotAcquired, Refused, Unavailable, Unknown

Data = Union[str, bytes]
Json = Dict[str, Any]
Call = Tuple[str, str, Json]
T = TypeVar("T")

CALL_LIMIT = 60.0
"""Longest wait for an answer in seconds, beyond what the caller wants to wait."""
_KINDS = {"not_acquired": NotAcquired, "unavailable": Unavailable, "lost": Lost, "unknown": Unknown}


def complete(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that blocks where it waits."""
    try:
        work.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    raise RuntimeError("a coroutine of a blocking link has suspended")


def default_socket() -> str:
    """Returns the socket of this user's agent, or else of the machine's. Where neither answers,
    starts the user's, which ends when nobody uses it."""
    folder = os.environ.get("XDG_RUNTIME_DIR") if os.geteuid() != 0 else None
    sockets = [os.path.join(it, "baton", "agent.sock") for it in (folder, "/run") if it]
    for path in sockets:
        # A dead agent's is still there, and one may be another's.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as link:
            link.settimeout(CALL_LIMIT)
            link.connect(path)
            return path
    # Where this fails, the error of the request names the socket.
    os.system("exec baton agent --background </dev/null >/dev/null 2>&1")
    return sockets[0]


def route(kind: str, path: str, rest: str = "") -> str:
    """Returns the URL of a znode path."""
    if not path.startswith("/") or path == "/":
        raise Refused(repr(path), "not a znode path", "give one like /deploy")
    # The agent refuses what is not UTF-8.
    return f"/v1/{kind}{quote(path, errors='surrogatepass')}{rest}"


def milliseconds(name: str, seconds: Optional[float]) -> Optional[int]:
    """Returns a time in whole milliseconds, 0 only for 0."""
    if seconds is None:
        return None
    if not 0 <= seconds < 1e12:
        raise Refused(name, f"{seconds!r} is not a time in seconds", "give 0 or more")
    return max(int(seconds * 1000), 1 if seconds else 0)


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
    head = f"{method} {url} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return (head + body).encode("ascii")


class AgentSilent(Unavailable):
    """The agent does not answer, or not as one."""

    def __init__(self, agent: str, cause: object) -> None:
        super().__init__(agent, f"no answer of the agent: {cause}", "start it: baton agent")
        self.since = time.time()


class _Answer:
    """Parser of one response: an object a line, or one object."""

    def __init__(self) -> None:
        self._raw, self._text, self._status, self._left = bytearray(), bytearray(), 0, -1
        self._is_chunked = self._is_complete = False

    def feed(self, data: bytes) -> List[Json]:
        """Returns the objects that these bytes complete; raises the error that they name."""
        self._raw += data
        if len(self._raw) + len(self._text) > 16 << 20:
            raise ValueError("the answer is too large")
        if self._status or self._head():
            while not self._is_complete and self._part():
                pass
        lines = self._text.split(b"\n")
        self._text = bytearray() if self._is_complete else lines.pop()
        found = [json.loads(line) for line in lines if line.strip()]
        if not all(isinstance(it, dict) for it in found):
            raise ValueError("the answer is not an object")
        if self._status >= 400 and self._is_complete:
            raise _failure(found[0] if found else {"thing": f"HTTP status {self._status}"})
        for it in found:
            if it.get("event") == "error":
                raise _failure(it)
        if not data and not found:
            raise EOFError("the agent has ended the connection")
        return found

    def _head(self) -> bool:
        head, end, rest = self._raw.partition(b"\r\n\r\n")
        if not end:
            return False
        first, *fields = head.decode("latin-1").lower().split("\r\n")
        if not first.startswith("http/1.1 "):
            raise ValueError("the answer is not HTTP/1.1")
        values = dict(field.split(": ", 1) for field in fields)
        self._is_chunked = values.get("transfer-encoding") == "chunked"
        self._left = -1 if self._is_chunked else int(values.get("content-length", "0"))
        self._raw, self._status = rest, int(first[9:12])
        return True

    def _part(self) -> bool:
        """Moves one part of the body to the text; whether there may be another."""
        if self._left < 0:
            size, end, rest = self._raw.partition(b"\r\n")
            if end:
                self._raw, self._left = rest, int(size, 16)
                self._is_complete = self._left == 0
            return bool(end)
        end_at = self._left + (2 if self._is_chunked else 0)
        if len(self._raw) < end_at:
            return False
        self._text += self._raw[: self._left]
        del self._raw[:end_at]
        self._left, self._is_complete = -1, not self._is_chunked
        return True


def _failure(answer: Json) -> BatonError:
    kind = _KINDS.get(str(answer.get("code")), Refused)
    thing, cause, next_step = (str(answer.get(it, "")) for it in ("thing", "cause", "next_step"))
    # An agent does not remember what has ended: a guard that it does not know is a lost one.
    return (Lost if thing.startswith("guard ") else kind)(thing, cause, next_step)


class Link:
    """Connection that blocks the thread that waits."""

    def __init__(self, agent: str) -> None:
        self._agent, self._answer, self._pid = agent, _Answer(), os.getpid()

    @classmethod
    async def open(cls, agent: str, call: Call, limit: Optional[float] = CALL_LIMIT) -> "Link":
        """Sends a request."""
        self, data = cls(agent), _encode(call)
        try:
            await self._send(data, limit)
        except OSError as error:
            self.close()
            raise AgentSilent(agent, error) from None
        return self

    async def _send(self, data: bytes, limit: Optional[float]) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(limit)
        self.socket.connect(self._agent)
        with contextlib.suppress(BrokenPipeError):  # The agent answers before it has read all.
            self.socket.sendall(data)

    async def receive(self, limit: Optional[float]) -> List[Json]:
        """Waits for objects. Raises the error that the agent names, or `AgentSilent`."""
        try:
            return self._answer.feed(await self._receive(limit))
        except (OSError, EOFError, ValueError) as error:
            raise AgentSilent(self._agent, error) from None

    async def _receive(self, limit: Optional[float]) -> bytes:
        self.socket.settimeout(limit)
        return self.socket.recv(1 << 16)

    def end(self) -> None:
        """Ends the response from another thread. A forked child only closes its own descriptor."""
        if self._pid != os.getpid():
            return self.socket.close()
        with contextlib.suppress(OSError):  # It has ended already.
            self.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the connection, by the thread that reads it."""
        self.socket.close()


class AsyncLink(Link):
    """Connection that suspends the task that waits."""

    async def _send(self, data: bytes, limit: Optional[float]) -> None:
        self._reader, self._writer = await asyncio.open_unix_connection(self._agent)
        self._writer.write(data)

    async def _receive(self, limit: Optional[float]) -> bytes:
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

    end = close


async def ask(kind: Type[Link], agent: str, call: Call, limit: Optional[float] = CALL_LIMIT
              ) -> Json:
    """Sends a request and returns its answer."""
    link = await kind.open(agent, call, limit)
    try:
        found: List[Json] = []
        while not found:
            found = await link.receive(limit)
        return found[0]
    except AgentSilent as error:
        if call[0] == "GET":
            raise
        raise Unknown(" ".join(call[:2]), error.cause, "read before you repeat it") from None
    finally:
        link.close()


async def explain(kind: Type[Link], agent: str, call: Call, error: BatonError) -> None:
    """Adds to an error who holds, or since when no server answers, where the agent reports it."""
    with contextlib.suppress(BatonError):  # The error says what matters without it.
        if isinstance(error, Unavailable) and error.since is None:
            silence = (await ask(kind, agent, ("GET", "/v1/health", {})))["unavailable_for_ms"]
            error.since = None if silence is None else time.time() - silence / 1000
        if isinstance(error, NotAcquired) and not call[1].startswith("/v1/queue/"):
            path = call[1].split("/", 3)[3]
            state = await ask(kind, agent, ("GET", f"/v1/locks?path=/{path}", {}))
            for holder in state["holders"][:1]:
                error.held_by = (holder.get("record") or {}).get("name") or holder["path"]
