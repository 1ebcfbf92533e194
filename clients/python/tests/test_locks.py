"""Locks and elections through an agent: one holder at a time, deaths, losses, guarded writes."""

import os
import signal
import threading
import time
from unittest import mock

import baton
from baton import _held

from .support import PATIENCE, AgentCase, Waiter

HOLDER = """
with agent.lock(sys.argv[1], session_timeout=float(sys.argv[2])) as guard:
    print(guard.token, flush=True)
    sys.stdin.read()
"""

STOPPED = """
guard = agent.lock(sys.argv[1], session_timeout=float(sys.argv[2])).acquire()
os.kill(os.getpid(), signal.SIGSTOP)
try:
    guard.check()
    print("held", flush=True)
except baton.LockLost as error:
    print(error.reason, flush=True)
sys.stdin.read()
"""


class Locks(AgentCase):
    def test_one_holds_at_a_time_and_tokens_rise(self):
        with self.agent.lock("/deploy", name="first") as first:
            first.check()
            with self.assertRaises(baton.NotAcquired) as refused:
                self.agent.lock("/deploy", wait=0).acquire()
            self.assertEqual(refused.exception.held_by, "first")
            with self.assertRaises(baton.NotAcquired):
                self.agent.lock("/deploy", wait=0.05).acquire()
        with self.agent.lock("/deploy") as second:
            self.assertGreater(second.token, first.token)
        self.assertRaises(baton.LockLost, first.check)

    def test_a_waiter_learns_its_place_and_is_next(self):
        with self.agent.lock("/place"):
            waiter = Waiter(lambda on_wait: self.agent.lock("/place", on_wait=on_wait))
            self.assertTrue(waiter.waits.wait(PATIENCE))
        waiter.result().release()

    def test_a_wait_that_an_exception_ends_leaves_no_waiter(self):
        with self.agent.lock("/raised"):
            try:
                self.agent.lock("/raised", on_wait=lambda event: 1 / 0).acquire()
            except ZeroDivisionError as error:
                kept = error  # And with its frames the connection, unless that was closed.
            waiter = Waiter(lambda on_wait: self.agent.lock("/raised", on_wait=on_wait))
        waiter.result().release()
        self.assertIsNotNone(kept.__traceback__)

    def test_the_death_of_a_program_passes_its_lock_on_without_the_session_timeout(self):
        # All guards share one session, which lives on: nothing but the closed socket frees the lock.
        holder = self.program(HOLDER, "/death", "40")
        token = int(holder.stdout.readline())
        lock = lambda on_wait: self.agent.lock("/death", session_timeout=40, on_wait=on_wait)
        waiter = Waiter(lock)
        self.assertTrue(waiter.waits.wait(PATIENCE))
        holder.send_signal(signal.SIGKILL)
        guard = waiter.result()
        self.assertGreater(guard.token, token)
        guard.release()

    def test_a_program_stopped_for_its_lease_finds_it_ended_at_its_first_instruction(self):
        timeout = 4
        program = self.program(STOPPED, "/stopped", str(timeout))
        _, status = os.waitpid(program.pid, os.WUNTRACED)
        self.assertTrue(os.WIFSTOPPED(status))
        # No lease that it has read lasts longer than a session timeout from now on, while the
        # agent's own lease goes on.
        end_ns = _held.now_ns() + timeout * 10**9
        while _held.now_ns() < end_ns:
            time.sleep(0.1)
        with self.assertRaises(baton.NotAcquired):
            self.agent.lock("/stopped", wait=0).acquire()
        program.send_signal(signal.SIGCONT)
        self.assertIn("the lease ended", program.stdout.readline())
        # It ends its connection though it lives on, so that the lock passes on.
        self.agent.lock("/stopped").acquire().release()

    def test_a_guarded_write_applies_while_the_lock_is_held_and_not_after(self):
        guard = self.agent.lock("/txn").acquire()
        guard.txn([{"op": "create", "path": "/state", "data": b"\x00\xff"}])
        with self.assertRaises(baton.Refused):
            guard.txn([{"op": "create", "path": "/state"}])
        guard.txn([{"op": "set", "path": "/state", "data": "text", "version": 0}])
        self.end_from_outside(guard)
        write = {"op": "set", "path": "/state", "data": "late"}
        # The agent refuses it, whatever this process knows by now.
        with mock.patch.object(guard, "check"), self.assertRaises(baton.LockLost):
            guard.txn([write])
        guard = self.agent.lock("/txn").acquire()
        guard.txn([{"op": "check", "path": "/state", "version": 1}])
        guard.release()
        with self.assertRaises(baton.LockLost):
            guard.txn([write])

    def test_a_loss_is_told_once_and_the_block_says_that_it_ran_without_the_lock(self):
        notified = threading.Semaphore(0)
        with self.assertRaises(baton.LockLost) as lost:
            with self.agent.lock("/notified") as guard:
                guard.on_lost(lambda: 1 / 0)
                guard.on_lost(notified.release)
                with self.assertLogs("baton"):
                    self.end_from_outside(guard)
                    self.assertTrue(notified.acquire(timeout=PATIENCE))
                self.assertRaises(baton.LockLost, guard.check)
        self.assertIn("another request", lost.exception.reason)
        late = []
        guard.on_lost(lambda: late.append(1))
        self.assertEqual(late, [1])
        self.assertFalse(notified.acquire(blocking=False))

    def test_a_release_is_no_loss(self):
        notified = []
        guard = self.agent.lock("/no-loss").acquire()
        guard.on_lost(lambda: notified.append(1))
        self.assertIn(guard, _held._watcher._held.values())
        guard.release()
        # Nobody reads its events any more.
        self.assertNotIn(guard, _held._watcher._held.values())
        self.assertEqual(notified, [])

    def test_an_exception_of_the_block_is_not_hidden_by_the_loss(self):
        with self.assertRaises(ZeroDivisionError):
            with self.agent.lock("/hidden") as guard:
                self.end_from_outside(guard)
                1 / 0
        self.agent.lock("/hidden").acquire().release()

    def test_a_command_is_killed_with_its_group_at_the_loss(self):
        guard = self.agent.lock("/killed").acquire()
        read, write = os.pipe()

        def end_once_it_runs():
            os.read(read, 1)
            self.end_from_outside(guard)

        thread = threading.Thread(target=end_once_it_runs)
        thread.start()
        with self.assertRaises(baton.LockLost):
            guard.run(["sh", "-c", "sleep 1000 & echo; wait"], stdout=write)
        thread.join()
        os.close(write)
        # The end of the file: no process of the group has the pipe any more.
        self.assertEqual(os.read(read, 1), b"")
        os.close(read)

    def test_a_command_gives_its_exit_code_and_leaves_the_lock_held(self):
        with self.agent.lock("/run") as guard:
            self.assertEqual(guard.run(["sh", "-c", "exit 7"]), 7)
            guard.check()
            self.assertRaises(FileNotFoundError, guard.run, ["/nonexistent"])

    def test_a_command_keeps_the_lock_of_a_program_that_was_killed(self):
        program = self.program(
            "guard = agent.lock('/orphan').acquire()\n"
            "guard.run(['sh', '-c', 'echo $$; exec sleep 1000'])"
        )
        command = int(program.stdout.readline())
        program.kill()
        program.wait()
        with self.assertRaises(baton.NotAcquired):
            self.agent.lock("/orphan", wait=0).acquire()
        os.kill(command, signal.SIGKILL)
        self.agent.lock("/orphan").acquire().release()

    def in_child(self, work):
        """Runs work in a forked child, and returns whether it succeeded."""
        child = os.fork()
        if child == 0:
            try:
                work()
                os._exit(0)
            finally:
                os._exit(1)
        return os.waitpid(child, 0)[1] == 0

    def test_a_forked_child_checks_soundly_and_releases_nothing(self):
        with self.agent.lock("/fork") as guard:

            def check():
                guard.check()
                _held.now_ns = lambda end=guard._until_ns: end
                with self.assertRaises(baton.LockLost):
                    guard.check()

            self.assertTrue(self.in_child(check))
            self.assertTrue(self.in_child(guard.release))
            guard.check()
            with self.assertRaises(baton.NotAcquired):
                self.agent.lock("/fork", wait=0).acquire()

    def test_readers_share_and_slots_are_counted(self):
        with self.agent.lock("/table", mode="read"), self.agent.lock("/table", mode="read"):
            with self.assertRaises(baton.NotAcquired):
                self.agent.lock("/table", mode="write", wait=0).acquire()
        self.agent.lock("/table", mode="write").acquire().release()
        with self.agent.lock("/pool", slots=2), self.agent.lock("/pool", slots=2):
            with self.assertRaises(baton.NotAcquired):
                self.agent.lock("/pool", slots=2, wait=0).acquire()

    def test_one_leads_at_a_time_and_terms_rise(self):
        with self.agent.elect("/main", data="a:1") as first:
            self.assertEqual(first.term, 1)
            with self.assertRaises(baton.NotAcquired):
                self.agent.elect("/main", wait=0).acquire()
        with self.agent.elect("/main", data=b"\xff") as second:
            self.assertEqual(second.term, 2)

    def test_one_object_is_for_one_block_at_a_time(self):
        lock = self.agent.lock("/object")
        with lock:
            self.assertRaises(baton.Refused, lock.__enter__)
        with lock as guard:
            guard.release()
            guard.release()

    def test_a_lock_outlives_the_program_that_holds_it_until_its_token_releases_it(self):
        program = self.program("print(agent.hold('/release', 600))")
        token = int(program.stdout.readline())
        program.wait()
        with self.assertRaises(baton.NotAcquired):
            self.agent.lock("/release", wait=0).acquire()
        self.assertEqual(self.agent.hold("/release", 600, token=token), token)
        self.assertTrue(self.agent.token_is_current("/release", token))
        self.assertRaises(baton.Lost, self.agent.release_hold, "/release", token + 1)
        self.agent.release_hold("/release", token)
        self.assertFalse(self.agent.token_is_current("/release", token))
        with self.agent.lock("/release"):
            with self.assertRaises(baton.NotAcquired):
                self.agent.hold("/release", 1, wait=0)


class BadInput(AgentCase):
    def test_each_is_refused_by_name(self):
        agent = self.agent
        for number, refused in enumerate([
            lambda: agent.lock("deploy"),
            lambda: agent.lock("/"),
            lambda: agent.lock("/a", wait=-1),
            lambda: agent.lock("/a", wait=float("nan")),
            lambda: agent.lock("/a", session_timeout=float("inf")),
            lambda: agent.lock("/a/../b").acquire(),
            lambda: agent.lock("//a").acquire(),
            lambda: agent.lock("/a\0b").acquire(),
            lambda: agent.lock("/a\udc80").acquire(),
            lambda: agent.lock("/a", mode="both").acquire(),
            lambda: agent.lock("/a", slots=0).acquire(),
            lambda: agent.lock("/a", slots=2, mode="read").acquire(),
            lambda: agent.lock("/a", name=b"bytes").acquire(),
            lambda: agent.lock("/a", mode="read", lock_delay=1).acquire(),
            lambda: agent.hold("/a", 0),
            lambda: agent.hold("/a", 1e9),
            lambda: agent.counter("/hits").add(2**64),
            lambda: agent.queue("/jobs").put(b"x" * (3 << 20)),
            lambda: agent.join("/workers", "a/b").acquire(),
        ]):
            with self.subTest(number=number), self.assertRaises(baton.Refused) as error:
                refused()
            self.assertTrue(error.exception.thing and error.exception.why, error.exception)
        with agent.lock("/a", wait=0) as guard:
            for writes in ([{"op": "steal"}], [{}], [{"op": "set", "path": "x"}], [{"a": b""}]):
                with self.subTest(writes=writes):
                    self.assertRaises(baton.Refused, guard.txn, writes)
            guard.check()

    def test_names_of_any_characters_are_one_lock(self):
        with self.agent.lock("/a b%2F?#ü+") as guard:
            with self.assertRaises(baton.NotAcquired) as refused:
                self.agent.lock("/a b%2F?#ü+", wait=0).acquire()
            self.assertIn("python", refused.exception.held_by)
            self.assertTrue(self.agent.token_is_current("/a b%2F?#ü+", guard.token))


class EndOfAgent(AgentCase):
    def test_it_ends_guards_and_waits_and_is_unavailable_since_then(self):
        notified = threading.Event()
        guard = self.agent.lock("/deploy").acquire()
        guard.on_lost(notified.set)
        waiter = Waiter(lambda on_wait: self.agent.lock("/deploy", on_wait=on_wait))
        self.assertTrue(waiter.waits.wait(PATIENCE))
        self.process.kill()
        self.process.wait()
        self.assertTrue(notified.wait(PATIENCE))
        self.assertRaises(baton.LockLost, guard.check)
        self.assertIsInstance(waiter.result(), baton.Unavailable)
        with self.assertRaises(baton.Unavailable) as error:
            self.agent.lock("/deploy").acquire()
        self.assertLessEqual(error.exception.since, time.time())
        self.assertIn("baton agent", error.exception.next_step)
        self.assertRaises(baton.Unavailable, self.agent.health)
