package io.github.batonlocks;

import io.github.batonlocks.Agent.PutOptions;
import io.github.batonlocks.BatonException.Lost;
import io.github.batonlocks.BatonException.NotAcquired;
import io.github.batonlocks.BatonException.Refused;
import io.github.batonlocks.BatonException.Unavailable;
import io.github.batonlocks.Guard.Write;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;

/** Locks and the rest through an agent: one holder at a time, deaths, losses, guarded writes. */
public final class AgentTest {
    private static final Duration NO_WAIT = Duration.ZERO;

    private AgentTest() {}

    private static Agent agent() throws IOException {
        return AgentProcess.shared().agent;
    }

    private static NotAcquired isTaken(Acquisition<?> acquisition) {
        return Check.fails(NotAcquired.class, () -> acquisition.acquire(NO_WAIT));
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** Ends a guard so that its holder knows nothing before a message comes. */
    private static void endFromOutside(Guard guard) {
        var answer = guard.grant.agent().ask(new Link.Call("POST", "/v1/guard/" + guard.id() + "/release"));
        Check.equal(answer.get("event"), "released");
    }

    /** Acquires in another thread, and returns once that waits. */
    private static FutureTask<Guard> waiter(Acquisition<Guard> acquisition) throws Exception {
        var waits = new CountDownLatch(1);
        var task = Check.start(() -> acquisition.onWait(position -> {
            Check.equal(position.place(), 1L);
            waits.countDown();
        }).acquire());
        Check.isTrue(waits.await(60, TimeUnit.SECONDS), "it does not wait");
        return task;
    }

    public static void oneHoldsAtATimeAndTokensRise() throws Exception {
        long token;
        try (Guard first = agent().lock("/deploy").name("first").acquire()) {
            first.check();
            token = first.token();
            Check.equal(isTaken(agent().lock("/deploy")).heldBy().orElse(""), "first");
            Check.fails(NotAcquired.class,
                    () -> agent().lock("/deploy").acquire(Duration.ofMillis(50)));
            var holder = Json.list(agent().locks("/deploy"), "holders").get(0);
            Check.equal(holder.get("token"), token);
            first.release();
            Check.fails(Lost.class, first::check);
        }
        try (Guard second = agent().lock("/deploy").acquire()) {
            Check.isTrue(second.token() > token, second.token());
        }
    }

    public static void aWaiterIsNotifiedOfItsPlaceAndIsNext() throws Exception {
        Guard guard = agent().lock("/place").acquire();
        var next = waiter(agent().lock("/place"));
        guard.close();
        Check.result(next).close();
    }

    public static void anInterruptedWaitLeavesNoWaiter() throws Exception {
        Guard guard = agent().lock("/interrupt").acquire();
        var waits = new CountDownLatch(1);
        var thread = new Thread(() -> {
            Check.fails(InterruptedException.class, () ->
                    agent().lock("/interrupt").onWait(it -> waits.countDown()).acquire());
            Check.isTrue(!Thread.currentThread().isInterrupted(), "the flag is cleared");
        });
        thread.start();
        waits.await();
        thread.interrupt();
        thread.join();
        guard.close();
        agent().lock("/interrupt").acquire().close();
    }

    public static void anInterruptedThreadReleases() throws Exception {
        Guard guard = agent().lock("/interrupted").acquire();
        Thread.currentThread().interrupt();
        guard.close();
        Check.isTrue(Thread.interrupted(), "the flag is kept");
        agent().lock("/interrupted").acquire(NO_WAIT).close();
    }

    public static void theDeathOfAProgramPassesItsLockOnWithoutTheSessionTimeout() throws Exception {
        var holder = AgentProcess.program(Holder.class.getName(), agent().socket, "/death");
        long token = Long.parseLong(AgentProcess.line(holder));
        // All guards share one session, which lives on: only the closed socket frees the lock.
        var next = waiter(agent().lock("/death").sessionTimeout(Duration.ofSeconds(40)));
        holder.destroyForcibly();
        try (Guard guard = Check.result(next)) {
            Check.isTrue(guard.token() > token, token);
        }
    }

    public static void aProgramThatHoldsMayEndWithoutARelease() throws Exception {
        var holder = AgentProcess.program(Holder.class.getName(), agent().socket, "/end", "now");
        Check.equal(holder.waitFor(), 0);
        agent().lock("/end").acquire().close();
    }

    public static void aGuardedWriteAppliesWhileTheLockIsHeldAndNotAfter() throws Exception {
        Guard guard = agent().lock("/txn").acquire();
        guard.txn(Write.create("/state", new byte[] {0, -1}));
        Check.fails(Refused.class, () -> guard.txn(Write.create("/state", null)));
        guard.txn(Write.set("/state", bytes("a")).ifVersion(0));
        Check.fails(Refused.class, () -> guard.txn(Write.check("/state", 0), Write.delete("/state")));
        endFromOutside(guard);
        guard.lost().get(60, TimeUnit.SECONDS);
        // The agent refuses it, whatever this process knows by now.
        var late = List.of(java.util.Map.of("op", "delete", "path", "/state"));
        Check.fails(Lost.class, () -> guard.grant.agent().ask(guard.call("txn", "writes", late)));
        Check.fails(Lost.class, guard::txn);
    }

    public static void aLossIsNotifiedOnceAndTheBlockSaysThatItRanWithoutTheLock() throws Exception {
        Lost lost = Check.fails(Lost.class, () -> {
            try (Guard guard = agent().lock("/lost").acquire()) {
                endFromOutside(guard);
                Check.equal(guard.lost().get(60, TimeUnit.SECONDS).reason(),
                        "another request ended it");
            }
        });
        Check.equal(lost.thing(), "/lost");
    }

    public static void workIsInterruptedAtTheLoss() throws Exception {
        Guard guard = agent().lock("/work").acquire();
        Check.equal(guard.run(() -> 7), 7);
        Check.fails(IllegalStateException.class, () -> guard.run(() -> {
            throw new IllegalStateException();
        }));
        var wasInterrupted = new CountDownLatch(1);
        Check.fails(Lost.class, () -> guard.run(() -> {
            Check.start(() -> {
                endFromOutside(guard);
                return null;
            });
            try {
                return new CountDownLatch(1).await(60, TimeUnit.SECONDS);
            } catch (InterruptedException error) {
                wasInterrupted.countDown();
                throw error;
            }
        }));
        Check.equal(wasInterrupted.getCount(), 0L);
        Check.isTrue(!Thread.currentThread().isInterrupted(), "the interrupt was for the work");
        Check.fails(Lost.class, () -> guard.run(() -> 7));
    }

    public static void readersShareAndSlotsAreCounted() throws Exception {
        try (Guard first = agent().lock("/table").read().acquire();
                Guard second = agent().lock("/table").read().acquire()) {
            isTaken(agent().lock("/table").write());
            Check.isTrue(first.isHeld() && second.isHeld(), "both read");
        }
        agent().lock("/table").write().acquire().close();
        try (Guard first = agent().lock("/pool").slots(2).acquire();
                Guard second = agent().lock("/pool").slots(2).acquire()) {
            isTaken(agent().lock("/pool").slots(2));
            Check.isTrue(first.isHeld() && second.isHeld(), "both hold");
        }
    }

    public static void oneLeadsAtATimeAndTermsRise() throws Exception {
        for (long term = 1; term < 3; term++) {
            try (Guard leader = agent().elect("/main").data(bytes("a:1")).acquire()) {
                Check.equal(leader.term(), term);
                isTaken(agent().elect("/main"));
            }
        }
    }

    public static void aLockOutlivesItsRequestUntilItsTokenReleasesIt() throws Exception {
        long token = agent().hold("/release", Duration.ofMinutes(10), null, "build");
        Check.equal(isTaken(agent().lock("/release")).heldBy().orElse(""), "build");
        agent().holdOn("/release", Duration.ofMinutes(10), token);
        Check.isTrue(agent().tokenIsCurrent("/release", token), token);
        Check.fails(NotAcquired.class,
                () -> agent().hold("/release", Duration.ofMinutes(1), NO_WAIT, null));
        Check.fails(Lost.class, () -> agent().releaseHold("/release", token + 1));
        agent().releaseHold("/release", token);
        Check.isTrue(!agent().tokenIsCurrent("/release", token), token);
    }

    public static void anItemComesBackUntilItIsAcknowledged() throws Exception {
        var jobs = agent().queue("/jobs");
        jobs.put(new byte[] {-1, 0}, new PutOptions().priority(1).maxAttempts(5));
        for (int step = 0; step < 3; step++) {
            Item kept;
            try (Item item = jobs.take().visibility(Duration.ofSeconds(30)).acquire()) {
                kept = item;
                Check.equal(item.data().length, 2);
                Check.equal(item.attempt(), step + 1);
                item.extend();
                item.check();
                if (step == 0) {
                    item.nack("again", Duration.ZERO);
                } else if (step == 2) {
                    item.ack();
                }
            }
            Check.fails(Lost.class, kept::check);
        }
        isTaken(jobs.take());
    }

    public static void theNextAgentTakesTheRequestsAfterARestart() throws Exception {
        var other = new AgentProcess();
        Guard last = other.agent.lock("/deploy").acquire();
        last.release();
        other.process.destroyForcibly().waitFor();
        other.start();
        try (Guard guard = other.agent.lock("/deploy").acquire()) {
            Check.isTrue(guard.token() > last.token(), guard.token());
        }
        other.stop();
    }

    public static void membersAreThereUntilTheyLeave() throws Exception {
        try (var members = agent().members("/workers")) {
            Check.equal(members.next(), List.of());
            try (Membership member = agent().join("/workers", "a").data(bytes("x:1")).acquire()) {
                Check.equal(members.next().get(0).data(), "x:1");
                member.check();
            }
            Check.equal(members.next(), List.of());
        }
    }

    public static void aCounterAddsAndShows() throws Exception {
        var hits = agent().counter("/hits");
        Check.equal(List.of(hits.add(1), hits.add(41), hits.add(-2), hits.get()),
                List.of(1L, 42L, 40L, 40L));
        Check.isTrue(agent().health().containsKey("guards"), "health");
    }

    public static void theLockViewIsALock() throws Exception {
        LockView lock = agent().lock("/view").asLock();
        LockView other = agent().lock("/view").asLock();
        Check.fails(IllegalMonitorStateException.class, lock::unlock);
        Thread.currentThread().interrupt();
        lock.lock();
        Check.isTrue(Thread.currentThread().isInterrupted(), "the flag is kept");
        Check.isTrue(!other.tryLock() && Thread.interrupted(), "tryLock keeps the flag");
        lock.check();
        Check.isTrue(!other.tryLock(10, TimeUnit.MILLISECONDS), "it is held");
        lock.unlock();
        Check.isTrue(other.tryLock(), "it is free");
        other.unlock();
        Check.fails(UnsupportedOperationException.class, lock::newCondition);
    }

    public static void eachBadInputIsRefusedByName() {
        Check.Work[] all = {
            () -> agent().lock("deploy"), () -> agent().lock("/"), () -> agent().lock(null),
            () -> agent().lock("/a/../b").acquire(), () -> agent().lock("//a").acquire(),
            () -> agent().lock("/a\0b").acquire(), () -> agent().lock("/a").slots(0).acquire(),
            () -> agent().lock("/a").slots(2).read().acquire(),
            () -> agent().lock("/a").acquire(Duration.ofMillis(-1)),
            () -> agent().lock("/a").sessionTimeout(Duration.ofDays(1_000_000)),
            () -> agent().lock("/a").read().lockDelay(Duration.ofSeconds(1)).acquire(),
            () -> agent().lock("/a").visibility(Duration.ofSeconds(1)).acquire(),
            () -> agent().hold("/a", Duration.ZERO, null, null),
            () -> agent().hold("/a", Duration.ofDays(100), null, null),
            () -> agent().queue("/jobs").put(new byte[3 << 20]),
            () -> agent().join("/workers", "a/b").acquire(), () -> agent().locks("a"),
        };
        for (Check.Work work : all) {
            Refused error = Check.fails(Refused.class, work);
            Check.isTrue(!error.thing().isEmpty() && !error.reason().isEmpty(), error);
        }
    }

    public static void namesOfAnyCharactersAreOneLock() throws Exception {
        String path = "/a b%2F?#ü+*";
        try (Guard guard = agent().lock(path).acquire()) {
            String program = Files.readString(Path.of("/proc/self/comm")).strip();
            Check.equal(isTaken(agent().lock(path)).heldBy().orElse(""), program);
            Check.isTrue(agent().tokenIsCurrent(path, guard.token()), path);
        }
    }

    public static void theEndOfTheAgentEndsGuardsAndWaits() throws Exception {
        var own = new AgentProcess();
        Guard guard = own.agent.lock("/deploy").acquire();
        var next = waiter(own.agent.lock("/deploy"));
        own.process.destroyForcibly();
        guard.lost().get(60, TimeUnit.SECONDS);
        Check.fails(Lost.class, guard::check);
        Check.isTrue(Check.fails(Exception.class, () -> Check.result(next)).getCause()
                instanceof Unavailable, "the wait ends");
        var error = Check.fails(Unavailable.class, () -> own.agent.lock("/deploy").acquire());
        Check.isTrue(!error.since().orElseThrow().isAfter(Instant.now()), error);
        Check.isTrue(error.nextStep().contains("baton agent"), error);
        own.stop();
        Check.fails(Unavailable.class, () -> new Agent(Path.of("/nonexistent/socket")).health());
    }

    /** Stands for the class of that name, with the agent of the tests. */
    private static final class Baton {
        static Acquisition<Guard> lock(String path) throws IOException {
            return AgentTest.agent().lock(path);
        }

        static Agent agent() throws IOException {
            return AgentTest.agent();
        }
    }

    public static void theFirstExampleRuns() throws Exception {
        try (Guard guard = Baton.lock("/deploy").acquire()) { // starts an agent where none runs
            guard.check(); // throws BatonException.Lost once the lock is held no longer
            System.out.println("deploying with token " + guard.token());
        }
    }

    public static void theSecondExampleRuns() throws Exception {
        try (Guard guard = Baton.lock("/deploy").name("build 7").acquire(Duration.ofSeconds(30))) {
            guard.check();
            guard.run(() -> deploy(guard.token())); // is interrupted when the lock is lost
            guard.txn(Write.check("/deploy", 0)); // applies only while the lock is held
        }
    }

    private static int deploy(long token) {
        return 0;
    }

    public static void theThirdExampleRuns() throws Exception {
        Agent agent = Baton.agent();
        try (Guard term = agent.elect("/main").data("10.0.0.1:80".getBytes()).acquire()) {
            System.out.println("leads term " + term.term());
        }

        Agent.Queue jobs = agent.queue("/java-jobs");
        jobs.put("resize 7".getBytes(), new PutOptions().maxAttempts(5));
        try (Item item = jobs.take().acquire()) { // gives it back without an ack
            System.out.println(new String(item.data()));
            item.ack();
        }

        try (var member = agent.join("/java-workers", "a").data("10.0.0.1:80".getBytes()).acquire();
                var members = agent.members("/java-workers")) {
            System.out.println(members.next());
        }

        System.out.println(agent.counter("/java-hits").add(1));

        long token = agent.hold("/java-release", Duration.ofMinutes(10), null, null); // lives on
        System.out.println(agent.tokenIsCurrent("/java-release", token));
        agent.releaseHold("/java-release", token); // from another program
    }
}
