"""The same for asyncio: tasks that wait, are cancelled, and lose what they hold."""

import asyncio
import unittest
from unittest import mock

import baton
from baton import _held

from .support import PATIENCE, AgentCase


def run(work):
    return asyncio.run(asyncio.wait_for(work, PATIENCE))


class Asyncio(AgentCase):
    def test_one_holds_at_a_time_and_tokens_rise(self):
        async def work():
            async with self.agent.lock("/deploy") as first:
                first.check()
                await first.txn([{"op": "create", "path": "/async-state"}])
                with self.assertRaises(baton.NotAcquired):
                    await self.agent.lock("/deploy", wait=0).acquire_async()
            async with self.agent.lock("/deploy") as second:
                self.assertGreater(second.token, first.token)
                await second.release()

        run(work())

    def test_many_tasks_wait_in_one_thread(self):
        async def hold(tokens):
            async with self.agent.lock("/many") as guard:
                guard.check()
                tokens.append(guard.token)

        async def work():
            tokens = []
            await asyncio.gather(*(hold(tokens) for _ in range(50)))
            self.assertEqual(tokens, sorted(set(tokens)))
            self.assertEqual(len(tokens), 50)

        run(work())

    def test_a_cancelled_wait_leaves_no_waiter(self):
        async def work():
            async with self.agent.lock("/cancel"):
                waits = asyncio.Event()
                lock = self.agent.lock("/cancel", on_wait=lambda event: waits.set())
                task = asyncio.ensure_future(lock.acquire_async())
                await waits.wait()
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
            async with self.agent.lock("/cancel"):
                pass

        run(work())

    def test_work_is_cancelled_at_the_loss(self):
        async def work():
            began, ended = asyncio.Event(), []

            async def endless():
                try:
                    began.set()
                    await asyncio.Event().wait()
                finally:
                    await asyncio.sleep(0)
                    ended.append("cleaned up")

            guard = await self.agent.lock("/work").acquire_async()
            task = asyncio.ensure_future(guard.run(endless()))
            await began.wait()
            await asyncio.to_thread(self.end_from_outside, guard)
            with self.assertRaises(baton.LockLost):
                await task
            self.assertEqual(ended, ["cleaned up"])
            with self.assertRaises(baton.LockLost):
                await guard.run(endless())

        run(work())

    def test_work_gives_its_result_or_its_error_and_is_cancelled_with_its_caller(self):
        async def work():
            async with self.agent.lock("/result") as guard:
                self.assertEqual(await guard.run(asyncio.sleep(0, 7)), 7)

                async def fail():
                    1 / 0

                with self.assertRaises(ZeroDivisionError):
                    await guard.run(fail())
                began = asyncio.Event()

                async def endless():
                    began.set()
                    await asyncio.Event().wait()

                task = asyncio.ensure_future(guard.run(endless()))
                await began.wait()
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                guard.check()

        run(work())

    def test_a_lease_that_ended_while_the_loop_was_blocked_is_lost(self):
        async def work():
            guard = await self.agent.lock("/blocked", session_timeout=4).acquire_async()
            notified = asyncio.Event()
            guard.on_lost(notified.set)
            # The loop runs on only after the end of the lease that the guard has.
            with mock.patch.object(_held, "now_ns", lambda end=guard._until_ns: end):
                await notified.wait()
            self.assertIn("the lease ended", guard.lost.reason)
            async with self.agent.lock("/blocked"):
                pass

        run(work())

    def test_items_and_members(self):
        async def work():
            jobs = self.agent.queue("/async-jobs")
            await asyncio.to_thread(jobs.put, "job")
            async with jobs.take() as item:
                await item.extend()
                await item.nack("again")
            async with jobs.take() as item:
                self.assertEqual((item.data, item.attempt), (b"job", 2))
                await item.ack()
            views = self.agent.members("/async-workers").__aiter__()
            self.assertEqual(await views.__anext__(), [])
            async with self.agent.join("/async-workers", "a"):
                self.assertEqual([it["id"] for it in await views.__anext__()], ["a"])
            self.assertEqual(await views.__anext__(), [])
            await views.aclose()

        run(work())


class NoAgent(unittest.TestCase):
    def test_it_is_unavailable(self):
        async def work():
            with self.assertRaises(baton.Unavailable):
                async with baton.Agent("/nonexistent/socket").lock("/deploy"):
                    pass

        run(work())
