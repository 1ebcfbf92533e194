"""The lease on this process's clock, with a scripted agent and a clock that the tests set."""

import asyncio
import contextlib
import json
import os
import socket
import threading
import time
import unittest
from unittest import mock

import baton
from baton import _held

from .support import PATIENCE, Clock, KeepingAgent, ScriptedAgent

HEAD = b"HTTP/1.0 200 OK\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
SECOND = 10**9


def line(event):
    return json.dumps(event).encode() + b"\n"


def whole(answer, status="200 OK", version="1.0"):
    body = json.dumps(answer).encode()
    return f"HTTP/{version} {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


class Lease(unittest.TestCase):
    """The agent's clock is `offset` ahead of this process's, its first message takes `delay`."""

    def setUp(self):
        self.clock = Clock(self)
        self.offset, self.delay, self.healths = 0, 0, 0
        self.boot_id = self.boot_id_here = "this machine"
        patched = mock.patch.object(_held, "boot_id", lambda: self.boot_id_here)
        patched.start()
        self.addCleanup(patched.stop)
        self.stopped = threading.Event()
        self.addCleanup(self.stopped.set)
        self.agent = baton.Agent(ScriptedAgent(self, self.answer).socket)

    def reading(self, left=10):
        now_ns = self.clock.now_ns + self.offset
        until_ns = now_ns + left * SECOND
        return {"now_ns": now_ns, "boot_id": self.boot_id, "lease_until_ns": until_ns}

    def answer(self, url, send):
        if url == "/v1/health":
            self.healths += 1
            return send(whole({"unavailable_for_ms": None, **self.reading()}))
        held = {"event": "held", "guard": "g", "token": 1, **self.reading()}
        self.clock.advance(self.delay)
        self.send_event = lambda event: send(line(event))
        send(HEAD + line(held))
        self.stopped.wait(PATIENCE)

    def assert_lasts(self, guard, seconds):
        """The lease ends `seconds` seconds from now."""
        until_ns = self.clock.now_ns + int(seconds * SECOND)
        with mock.patch.object(_held, "now_ns", lambda: until_ns - 1):
            guard.check()
        with mock.patch.object(_held, "now_ns", lambda: until_ns):
            self.assertRaises(baton.LockLost, guard.check)

    def deliver(self, guard, event):
        """Sends an event, and waits until the client has handled it."""
        handled = threading.Event()
        handle = guard._handle

        async def handle_and_tell(event):
            await handle(event)
            handled.set()

        with mock.patch.object(guard, "_handle", handle_and_tell):
            self.send_event(event)
            self.assertTrue(handled.wait(PATIENCE))

    def test_the_same_clock_needs_no_allowance(self):
        self.assert_lasts(self.agent.lock("/a").acquire(), 10)
        self.assertEqual(self.healths, 0)

    def test_another_boot_loses_one_percent(self):
        self.boot_id_here = "another machine"
        self.assert_lasts(self.agent.lock("/a").acquire(), 9.9)

    def test_a_system_without_a_boot_id_is_another_clock(self):
        self.boot_id = self.boot_id_here = ""
        self.assert_lasts(self.agent.lock("/a").acquire(), 9.9)

    def test_a_time_namespace_is_another_clock_whatever_its_boot_id(self):
        for self.offset in (-600 * SECOND, 600 * SECOND, -1, 1):
            self.assert_lasts(self.agent.lock("/a").acquire(), 9.9)

    def test_a_late_message_is_counted_from_before_the_request(self):
        self.delay = 0.05
        self.assert_lasts(self.agent.lock("/a").acquire(), 10 - 0.05)
        self.boot_id_here = "another machine"
        self.assert_lasts(self.agent.lock("/a").acquire(), 9.9 - 0.05)

    def test_after_a_wait_the_clocks_are_compared_again(self):
        self.delay = 3
        self.assert_lasts(self.agent.lock("/a").acquire(), 7)
        self.boot_id_here = "another machine"
        self.assert_lasts(self.agent.lock("/a").acquire(), 6.93)
        self.assertEqual(self.healths, 2)

    def test_a_lease_that_has_ended_when_it_arrives_is_not_held(self):
        self.delay = 10
        self.assertRaises(baton.LockLost, self.agent.lock("/a").acquire)

    def test_a_longer_lease_counts_and_an_older_one_does_not_shorten_it(self):
        guard = self.agent.lock("/a").acquire()
        self.clock.advance(3)
        self.deliver(guard, {"event": "lease", **self.reading()})
        self.deliver(guard, {"event": "lease", **self.reading(left=2)})
        self.assert_lasts(guard, 10)

    def test_another_clock_is_read_again_with_each_lease(self):
        self.boot_id_here = "another machine"
        guard = self.agent.lock("/a").acquire()
        self.clock.advance(5)
        self.deliver(guard, {"event": "lease", **self.reading()})
        self.assert_lasts(guard, 9.9)
        self.assertEqual(self.healths, 1)

    def test_a_lease_of_another_boot_than_the_one_compared_is_not_taken(self):
        guard = self.agent.lock("/a").acquire()
        self.clock.advance(1)
        self.deliver(guard, {"event": "lease", **self.reading(), "boot_id": "another machine"})
        self.assert_lasts(guard, 9)

    def test_a_lease_that_has_ended_stays_ended(self):
        guard = self.agent.lock("/a").acquire()
        self.clock.advance(10)
        self.deliver(guard, {"event": "lease", **self.reading(left=1000)})
        self.clock.advance(-5)
        self.assertRaises(baton.LockLost, guard.check)

    def test_a_check_needs_no_message(self):
        guard = self.agent.lock("/a").acquire()
        self.clock.advance(9)
        guard.check()
        self.clock.advance(1)
        self.assertRaises(baton.LockLost, guard.check)

    def test_a_loss_that_comes_with_the_lock_itself_is_noticed(self):
        def answer(url, send):
            held = {"event": "held", "guard": "g", "token": 1, **self.reading()}
            send(HEAD + line(held) + line({"event": "lost", "reason": "the session ended"}))
            self.stopped.wait(PATIENCE)

        async def loss():
            guard, notified = await agent.lock("/a").acquire_async(), asyncio.Event()
            guard.on_lost(notified.set)
            await asyncio.wait_for(notified.wait(), PATIENCE)
            return guard.lost

        agent = baton.Agent(ScriptedAgent(self, answer).socket)
        for lost in (agent.lock("/a").acquire().lost, asyncio.run(loss())):
            self.assertEqual(lost.reason, "the session ended")

    def test_a_lost_guard_sends_no_write(self):
        guard = self.agent.lock("/a").acquire()
        seen = []
        guard._agent = ScriptedAgent(self, lambda url, send: seen.append(url)).socket
        self.clock.advance(10)
        self.assertRaises(baton.LockLost, guard.txn, [])
        self.assertEqual(seen, [])


def chunk(event):
    return b"%x\r\n%s\r\n" % (len(line(event)), line(event))


class Connections(unittest.TestCase):
    """An agent that keeps connections; it sends `last` behind the end of its answers to a lock."""

    def setUp(self):
        self.last, self.is_kept, self.ending, self.event = b"", True, lambda: None, "released"
        self.handled = threading.Semaphore(0)
        self.scripted = KeepingAgent(self, self.answer)
        self.agent = baton.Agent(self.scripted.socket)

    def answer(self, url, send, ended):
        if url == "/v1/lock/busy":
            send(whole({"thing": "/busy", "code": "not_acquired"}, "409 Conflict", "1.1"))
            ended()
        elif url == "/v1/lock/old":
            send(whole({"thing": "PUT", "code": "refused"}, "405 Method Not Allowed", "1.1"))
        elif url.startswith("/v1/lock"):
            now_ns = _held.now_ns()
            held = {"event": "held", "guard": "g", "token": 1, "now_ns": now_ns,
                    "boot_id": _held.boot_id(), "lease_until_ns": now_ns + 60 * SECOND}
            send(CHUNKED + chunk(held))
            ended()
            self.ending()
            if self.event:
                send(chunk({"event": self.event, "next_step": "ask again"}) + b"0\r\n\r\n")
            send(self.last)
            self.handled.release()
            return self.is_kept
        else:
            send(whole({"value": 7}, "200 OK", "1.1"))
        return True

    def turn(self):
        self.agent.lock("/a").acquire().release()
        self.assertTrue(self.handled.acquire(timeout=PATIENCE))

    def test_locks_and_other_requests_take_turns_on_one_connection(self):
        for _ in range(3):
            self.turn()
            self.assertRaises(baton.NotAcquired, self.agent.lock("/busy").acquire)
            self.assertEqual(self.agent.counter("/hits").get(), 7)
        self.assertEqual(self.scripted.count, 1)

    def test_a_connection_that_is_not_quiet_is_not_used_again(self):
        for self.is_kept, self.last in ((False, b""), (True, b"HTTP/1.1 200 OK\r\n\r\n")):
            before = self.scripted.count
            for _ in range(2):
                self.turn()
                self.await_unquiet()
            self.assertEqual(self.scripted.count, before + 2)

    def await_unquiet(self):
        """Waits until what the agent has done last has come to the connections that are kept."""
        end = time.monotonic() + PATIENCE
        for _, kept in baton._http._idle[self.scripted.socket]:
            while time.monotonic() < end:
                try:
                    kept.recv(1, socket.MSG_PEEK)
                    break
                except BlockingIOError:
                    time.sleep(0.001)

    def test_a_connection_that_is_old_is_not_used_again(self):
        self.turn()
        with mock.patch.object(baton._http, "_IDLE_LIMIT", 0):
            self.turn()
        self.assertEqual(self.scripted.count, 2)

    def test_a_forked_child_has_no_connection_that_its_parent_keeps(self):
        self.turn()
        number = baton._http._idle[self.scripted.socket][-1][1].fileno()
        child = os.fork()
        if child == 0:
            try:
                os.fstat(number)
            except OSError:
                os._exit(0)
            finally:
                os._exit(1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.turn()
        self.assertEqual(self.scripted.count, 1)

    def test_a_connection_that_a_command_has_got_is_not_used_again(self):
        guard = self.agent.lock("/a").acquire()
        self.assertEqual(guard.run(["true"]), 0)
        guard.release()
        self.turn()
        self.assertEqual(self.scripted.count, 2)

    def test_an_agent_of_the_version_before_is_named(self):
        with self.assertRaises(baton.Refused) as refused:
            self.agent.lock("/old").acquire()
        self.assertIn("older than this client", refused.exception.next_step)

    def test_a_release_ends_the_lease_before_it_is_sent(self):
        seen = []
        guard = self.agent.lock("/a").acquire()
        self.ending, self.event = lambda: seen.append(guard.lost is not None), "unknown"
        self.assertRaises(baton.Unknown, guard.release)
        self.assertEqual(seen, [True])

    def test_a_release_without_an_answer_is_unknown(self):
        self.event, self.is_kept = "", False
        self.assertRaises(baton.Unknown, self.agent.lock("/a").acquire().release)

    def test_asyncio_releases_on_the_connection_that_holds(self):
        async def turns():
            for _ in range(3):
                async with self.agent.lock("/a"):
                    pass
            self.event, self.is_kept = "", False
            with self.assertRaises(baton.Unknown):
                async with self.agent.lock("/a"):
                    pass

        asyncio.run(turns())
        self.assertEqual(self.scripted.count, 4)


class Answers(unittest.TestCase):
    def test_a_time_is_in_whole_milliseconds_and_a_short_one_is_not_none(self):
        times = [baton._http.milliseconds("wait", it) for it in (None, 0, 0.0001, 0.5, 30)]
        self.assertEqual(times, [None, 0, 1, 500, 30_000])

    def ask(self, answer):
        return baton.Agent(ScriptedAgent(self, answer).socket)

    def test_a_change_without_an_answer_is_unknown_and_a_read_is_not(self):
        hits = self.ask(lambda url, send: None).counter("/hits")
        with self.assertRaises(baton.Unknown) as error:
            hits.add()
        self.assertIn("/v1/counter/hits/add", error.exception.what)
        self.assertRaises(baton.Unavailable, hits.get)

    def test_a_member_that_leaves_a_silent_agent_does_not_wait_for_ever(self):
        def answer(url, send):
            send(HEAD + line({"event": "joined"}))
            stopped.wait(PATIENCE)

        async def leave():
            async with agent.join("/a", "x"):
                pass

        stopped = threading.Event()
        self.addCleanup(stopped.set)
        agent = self.ask(answer)
        with mock.patch.object(_held, "CALL_LIMIT", 0.01):
            with self.assertRaises(baton.Unknown):
                with agent.join("/a", "x"):
                    pass
            with self.assertRaises(baton.Unknown):
                asyncio.run(asyncio.wait_for(leave(), PATIENCE))

    def test_servers_that_do_not_answer_are_unavailable_since_when_the_agent_says(self):
        def answer(url, send):
            refusal = {"thing": "/a", "code": "unavailable", "unavailable_for_ms": 5000}
            send(whole(refusal, "503 Service Unavailable"))

        agent = self.ask(answer)
        for request in (agent.lock("/a").acquire, agent.counter("/a").get):
            with mock.patch("time.time", return_value=100.0):
                with self.assertRaises(baton.Unavailable) as error:
                    request()
            self.assertEqual(error.exception.since, 95.0)

    def test_an_answer_is_the_same_wherever_it_is_cut(self):
        events = [{"event": "waiting", "place": 1}, {"event": "held", "name": "ü\n"}]
        stream = HEAD + line(events[0]) + line(events[1])
        chunks = b"".join(b"1;a=b\r\n%c\r\n" % it for it in line(events[0])) + chunk(events[1])
        for data, expected in ((stream, events), (whole(events[0]), events[:1]),
                               (CHUNKED + chunks + b"0\r\n\r\n", events)):
            for size in range(1, len(data) + 1):
                answer, found = baton._http._Answer(), []
                for at in range(0, len(data), size):
                    with contextlib.suppress(EOFError):  # An end may come by itself.
                        found += answer.feed(data[at : at + size])
                if found != expected:
                    found += answer.feed(b"")
                self.assertEqual(found, expected, size)
                self.assertRaises(EOFError, answer.feed, b"")

    def test_what_is_no_answer_of_an_agent_is_unavailable(self):
        for data in (
            b"SSH-2.0-OpenSSH\r\n\r\n",
            b"HTTP/1.0 x\r\n\r\n{}",
            b"HTTP/1.0 200 OK\r\n",
            HEAD,
            HEAD + b"{",
            HEAD + b"[]\n",
            HEAD + b"1f\r\n{}\r\n",
            CHUNKED + b"x\r\n{}\r\n",
            CHUNKED + b"-9\r\n{}\r\n",
            CHUNKED + b"3\r\n{}",
            b"x" * (17 << 20),
        ):
            agent = self.ask(lambda url, send: send(data))
            with self.assertRaises(baton.Unavailable, msg=data[:60]):
                agent.health()

    def test_a_status_without_a_body_is_refused(self):
        data = b"HTTP/1.0 431 Too Large\r\n\r\n"
        self.assertRaises(baton.Refused, self.ask(lambda url, send: send(data)).health)
