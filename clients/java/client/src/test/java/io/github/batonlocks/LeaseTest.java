package io.github.batonlocks;

import io.github.batonlocks.BatonException.Lost;
import io.github.batonlocks.BatonException.Unknown;
import java.io.IOException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** The lease on this process's clocks, with a scripted agent and clocks that the tests set. */
public final class LeaseTest {
    private static final long SECOND = 1_000_000_000;

    private LeaseTest() {}

    /**
     * Scripted agent, and the clocks. The agent's clock is `offset` ahead of this process's, its
     * first message takes `delay`.
     */
    private static final class Lab extends Lease.Clocks {
        private volatile long mono = 5000 * SECOND;
        private volatile long wall = 1_700_000_000L * SECOND;
        private volatile long boot = 7000 * SECOND;
        private volatile boolean hasBoot = true;
        private volatile long grain;
        private volatile long offset;
        private volatile long delay;
        private volatile int healths;
        private volatile String bootIdHere = "this";
        private volatile String bootId = "this";
        private volatile ScriptedAgent.Sender sender;
        private volatile End atEnd;

        /** Answer at the end of what is held. */
        interface End {
            void answer(ScriptedAgent.Sender send) throws IOException;
        }

        @Override
        long mono() {
            return mono;
        }

        @Override
        long wall() {
            return wall;
        }

        @Override
        long boot() {
            return hasBoot ? boot - boot % Math.max(grain, 1) : -1;
        }

        @Override
        long grain() {
            return grain;
        }

        @Override
        long wallGrain() {
            return hasBoot ? 0 : grain / 10;
        }

        @Override
        String bootId() {
            return bootIdHere;
        }

        synchronized void advance(long time) {
            mono += time;
            sleep(time);
        }

        /** The machine sleeps. */
        synchronized void sleep(long time) {
            wall += time;
            boot += time;
        }

        Map<String, Object> reading(long left, String... event) {
            long now = boot + offset;
            var found = new HashMap<String, Object>(Map.of("now_ns", now, "boot_id", bootId,
                    "lease_until_ns", now + left, "guard", "g", "token", 1));
            for (String it : event) {
                found.put("event", it);
            }
            return found;
        }

        Guard lock() throws Exception {
            var scripted = new ScriptedAgent(true, (url, send) -> {
                if (url.equals(ScriptedAgent.END)) {
                    atEnd.answer(send);
                    return;
                } else if (url.equals("/v1/health")) {
                    healths++;
                    send.send(ScriptedAgent.whole(reading(10 * SECOND), "200 OK"));
                    return;
                }
                var held = reading(10 * SECOND, "held");
                advance(delay);
                sender = send;
                send.send(ScriptedAgent.HEAD + ScriptedAgent.line(held));
            });
            return new Agent(scripted.socket, this).lock("/a").acquire();
        }

        /** Sends an event, and waits until the client has handled it. */
        void deliver(Guard guard, Map<String, Object> event) throws Exception {
            var last = Map.of("event", "release_requested");
            sender.send(ScriptedAgent.line(event) + ScriptedAgent.line(last));
            while (!guard.releaseRequested()) {
                Thread.sleep(1);
            }
        }

        /** The lease ends so long from now. */
        void lasts(Guard guard, long left) {
            advance(left - 1_000_000);
            guard.check();
            advance(1_000_000);
            Check.fails(Lost.class, guard::check);
        }
    }

    private static void lastsOnAnotherClock(Lab lab) throws Exception {
        lab.lasts(lab.lock(), 99 * SECOND / 10);
    }

    public static void theSameClockNeedsNoAllowance() throws Exception {
        var lab = new Lab();
        lab.lasts(lab.lock(), 10 * SECOND);
        Check.equal(lab.healths, 0);
    }

    public static void anotherBootLosesOnePercent() throws Exception {
        var lab = new Lab();
        lab.bootIdHere = "another";
        lastsOnAnotherClock(lab);
    }

    public static void aSystemWithoutABootIdIsAnotherClock() throws Exception {
        var lab = new Lab();
        lab.bootId = "";
        lab.bootIdHere = "";
        lastsOnAnotherClock(lab);
    }

    public static void aSystemWithoutABootClockIsAnotherClock() throws Exception {
        var lab = new Lab();
        lab.hasBoot = false;
        lastsOnAnotherClock(lab);
    }

    public static void aTimeNamespaceIsAnotherClockWhateverItsBootId() throws Exception {
        for (long offset : new long[] {-600 * SECOND, 600 * SECOND, -1, 1}) {
            var lab = new Lab();
            lab.offset = offset;
            lastsOnAnotherClock(lab);
        }
    }

    public static void aLateMessageIsCountedFromBeforeTheRequest() throws Exception {
        var lab = new Lab();
        lab.delay = SECOND / 20;
        lab.lasts(lab.lock(), 10 * SECOND - SECOND / 20);
    }

    public static void afterAWaitTheClocksAreComparedAgain() throws Exception {
        for (String boot : List.of("this", "another")) {
            var lab = new Lab();
            lab.delay = 3 * SECOND;
            lab.bootIdHere = boot;
            lab.lasts(lab.lock(), boot.equals("this") ? 7 * SECOND : 693 * SECOND / 100);
            Check.equal(lab.healths, 1);
        }
    }

    public static void aLeaseThatHasEndedWhenItArrivesIsNotHeld() {
        var lab = new Lab();
        lab.delay = 10 * SECOND;
        Check.fails(Lost.class, lab::lock);
    }

    public static void aLongerLeaseCountsAndAnOlderOneDoesNotShortenIt() throws Exception {
        var lab = new Lab();
        Guard guard = lab.lock();
        lab.advance(3 * SECOND);
        lab.sender.send(ScriptedAgent.line(lab.reading(10 * SECOND, "lease")));
        lab.deliver(guard, lab.reading(2 * SECOND, "lease"));
        lab.lasts(guard, 10 * SECOND);
    }

    public static void anotherClockIsReadAgainWithEachLease() throws Exception {
        var lab = new Lab();
        lab.bootIdHere = "another";
        Guard guard = lab.lock();
        lab.advance(5 * SECOND);
        Lease before = guard.end;
        lab.deliver(guard, lab.reading(10 * SECOND, "lease"));
        while (guard.end == before) {
            // The agent is asked for its clock by another thread.
            Thread.sleep(1);
        }
        lab.lasts(guard, 99 * SECOND / 10);
    }

    public static void aLeaseThatHasEndedStaysEnded() throws Exception {
        var lab = new Lab();
        Guard guard = lab.lock();
        var later = lab.reading(100 * SECOND, "lease");
        lab.advance(10 * SECOND);
        lab.sender.send(ScriptedAgent.line(later));
        Lost lost = guard.lost().get(60, TimeUnit.SECONDS);
        Check.isTrue(lost.reason().contains("the lease ended"), lost);
        lab.advance(-5 * SECOND);
        Check.fails(Lost.class, guard::check);
    }

    public static void aMachineThatSleptHasNoLongerLease() throws Exception {
        for (boolean hasBoot : new boolean[] {true, false}) {
            var lab = new Lab();
            lab.hasBoot = hasBoot;
            Guard guard = lab.lock();
            lab.sleep(9 * SECOND);
            guard.check();
            lab.sleep(SECOND);
            Check.fails(Lost.class, guard::check);
        }
    }

    public static void aLeaseThatComesAfterASleepEndsWhereItEnds() throws Exception {
        var lab = new Lab();
        Guard guard = lab.lock();
        lab.sleep(5 * SECOND);
        lab.deliver(guard, lab.reading(10 * SECOND, "lease"));
        // Also for a machine whose wall clock is put back.
        lab.wall -= 3600 * SECOND;
        lab.lasts(guard, 10 * SECOND);
    }

    public static void aWallClockThatIsSetEndsNoLeaseAndExtendsNone() throws Exception {
        for (int sign : new int[] {1, -1}) {
            var lab = new Lab();
            Guard guard = lab.lock();
            lab.wall += sign * 3600 * SECOND;
            guard.check();
            lab.lasts(guard, 10 * SECOND);
        }
    }

    public static void aCoarseClockCostsTheLeaseItsGrain() throws Exception {
        var lab = new Lab();
        lab.grain = 10_000_000;
        lab.boot += 7_000_000;
        Guard guard = lab.lock();
        lab.advance(10 * SECOND - 18_000_000);
        guard.check();
        lab.advance(18_000_000);
        Check.fails(Lost.class, guard::check);
    }

    public static void aCoarseWallClockCostsAMachineThatSleptItsGrain() throws Exception {
        var lab = new Lab();
        lab.grain = 10_000_000;
        lab.hasBoot = false;
        Guard guard = lab.lock();
        lab.sleep(9_898_000_000L);
        guard.check();
        lab.sleep(1_000_000);
        Check.fails(Lost.class, guard::check);
    }

    public static void aStreamThatFailsWithoutACauseEndsTheGuard() throws Exception {
        for (var event : List.of(Map.of("event", "error", "thing", "/a"),
                Map.of("event", "lost", "reason", ""))) {
            var lab = new Lab();
            Guard guard = lab.lock();
            lab.sender.send(ScriptedAgent.line(event));
            guard.lost().get(60, TimeUnit.SECONDS);
            Check.fails(Lost.class, guard::check);
        }
    }

    public static void aReleaseEndsTheLeaseBeforeItIsSent() throws Exception {
        var lab = new Lab();
        Guard guard = lab.lock();
        lab.atEnd = send -> {
            var unknown = Map.of("event", "unknown", "next_step", guard.isHeld() + "");
            send.send(ScriptedAgent.line(unknown) + ScriptedAgent.END);
        };
        Check.equal(Check.fails(Unknown.class, guard::release).nextStep(), "false");
        Check.isTrue(!guard.lost().isDone(), "a release is no loss");
    }

    public static void aLostGuardSendsNoWrite() throws Exception {
        var lab = new Lab();
        Guard guard = lab.lock();
        lab.advance(10 * SECOND);
        java.nio.file.Files.delete(guard.grant.agent().socket);
        Check.fails(Lost.class, guard::txn);
        Check.fails(Lost.class, guard::release);
    }
}
