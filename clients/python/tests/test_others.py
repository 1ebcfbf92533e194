"""Queues, membership, counters, and the examples of the pages."""

import contextlib
import io
import os
import re
from unittest import mock

import baton

from .support import ROOT, AgentCase


class Others(AgentCase):
    def test_an_item_is_gone_after_its_block_and_comes_back_after_a_failure(self):
        jobs = self.agent.queue("/jobs")
        jobs.put("text")
        with self.assertRaises(ZeroDivisionError):
            with jobs.take() as item:
                self.assertEqual((item.data, item.attempt), (b"text", 1))
                1 / 0
        with jobs.take() as item:
            item.check()
            item.extend()
            self.assertEqual((item.data, item.attempt), (b"text", 2))
        with self.assertRaises(baton.NotAcquired):
            jobs.take(wait=0).acquire()
        self.assertRaises(baton.Lost, item.check)

    def test_an_item_is_settled_by_hand(self):
        jobs = self.agent.queue("/by-hand")
        jobs.put(b"\xff\x00", priority=1, max_attempts=3)
        with jobs.take() as item:
            item.nack("later")
        with jobs.take(visibility=5, name="worker") as item:
            self.assertEqual(item.data, b"\xff\x00")
            item.ack()
            item.ack()
        with self.assertRaises(baton.NotAcquired):
            jobs.take(wait=0).acquire()

    def test_an_item_of_a_program_that_dies_is_taken_by_the_next(self):
        self.agent.queue("/dead").put("job")
        program = self.program(
            "item = agent.queue('/dead').take().acquire()\n"
            "print(item.attempt, flush=True)\nsys.stdin.read()"
        )
        program.stdout.readline()
        program.kill()
        with self.agent.queue("/dead").take() as item:
            self.assertEqual(item.data, b"job")

    def test_members_are_there_as_long_as_their_block(self):
        views = iter(self.agent.members("/workers"))
        self.assertEqual(next(views), [])
        with self.agent.join("/workers", "a", "x:1") as member:
            seen = next(views)
            self.assertEqual([(it["id"], it["data"]) for it in seen], [("a", "x:1")])
            self.assertIsNone(member.lost)
        self.assertEqual(next(views), [])
        views.close()

    def test_a_counter_adds_and_shows(self):
        hits = self.agent.counter("/hits")
        self.assertEqual([hits.add(), hits.add(41), hits.add(-2), hits.get()], [1, 42, 40, 40])

    def test_health_counts_what_is_held(self):
        with self.agent.lock("/health"):
            self.assertGreaterEqual(self.agent.health()["guards"], 1)

    def test_the_examples_of_the_pages_run(self):
        with mock.patch.object(baton._agent, "socket", self.socket):
            for page in ("README.md", os.path.join("..", "..", "docs", "user", "python.md")):
                with open(os.path.join(ROOT, page), encoding="utf-8") as file:
                    examples = re.findall(r"```python\n(.*?)```", file.read(), re.DOTALL)
                self.assertTrue(examples, page)
                for example in examples:
                    with self.subTest(page=page, example=example):
                        with contextlib.redirect_stdout(io.StringIO()):
                            exec(compile(example, page, "exec"), {"__name__": "example"})

    def test_the_readme_holds_a_lock_in_its_first_ten_lines(self):
        with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
            self.assertIn("with baton.lock(", "".join(file.readlines()[:10]))
