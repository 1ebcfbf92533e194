"""The lease on this process's clock, with a scripted agent and a clock that the tests set."""

import json
import threading
import unittest
from unittest import mock

import baton
from baton import _held

from .support import PATIENCE, Clock, ScriptedAgent

HEAD = b"HTTP/1.0 200 OK\r\n\r\n"
SECOND = 10**9


def line(event):
    return json.dumps(event).encode() + b"\n"


def whole(answer, status="200 OK"):
    body = json.dumps(answer).encode()
    return f"HTTP/1.0 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


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

    def test_a_release_ends_the_lease_before_it_is_sent(self):
        guard = self.agent.lock("/a").acquire()
        seen = []

        def answer(url, send):
            seen.append((url, guard.lost is not None))
            send(whole({"event": "unknown", "next_step": "ask again"}))

        guard._agent = ScriptedAgent(self, answer).socket
        self.assertRaises(baton.Unknown, guard.release)
        self.assertEqual(seen, [("/v1/guard/g/release", True)])

    def test_a_lost_guard_sends_no_write(self):
        guard = self.agent.lock("/a").acquire()
        seen = []
        guard._agent = ScriptedAgent(self, lambda url, send: seen.append(url)).socket
        self.clock.advance(10)
        self.assertRaises(baton.LockLost, guard.txn, [])
        self.assertEqual(seen, [])


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
        for data, expected in ((stream, events), (whole(events[0]), events[:1])):
            for size in range(1, len(data) + 1):
                answer, found = baton._http._Answer(), []
                for at in range(0, len(data), size):
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
            b"x" * (17 << 20),
        ):
            agent = self.ask(lambda url, send: send(data))
            with self.assertRaises(baton.Unavailable, msg=data[:60]):
                agent.health()

    def test_a_status_without_a_body_is_refused(self):
        data = b"HTTP/1.0 431 Too Large\r\n\r\n"
        self.assertRaises(baton.Refused, self.ask(lambda url, send: send(data)).health)
