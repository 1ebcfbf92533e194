package io.github.batonlocks;

import io.github.batonlocks.BatonException.Lost;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** Something that is held as long as its response is open. */
public abstract class Held implements AutoCloseable {
    static final String NEXT_STEP = "stop what it protects, then acquire it again";
    private static final String RELEASED = "it was released";
    private static final String LEASE_ENDED =
            "the lease ended: no server answered in time, or this process was paused";
    private static final ExecutorService READERS = Executors.newCachedThreadPool(task -> {
        var thread = new Thread(task, "baton-reader");
        thread.setDaemon(true);
        return thread;
    });

    final Agent agent;
    final String path;
    private final Link link;
    private final CompletableFuture<Lost> lost = new CompletableFuture<>();
    /** End of the lease; null once it is held no longer. */
    private volatile Lease end = Lease.NONE;
    private volatile String reason;
    private Lease.Anchor anchor;
    private Future<?> timer;

    Held(Agent agent, String path, Link link) {
        this.agent = agent;
        this.path = path;
        this.link = link;
    }

    /** The path of the znode. */
    public String path() {
        return path;
    }

    /**
     * Throws {@link Lost} unless it is held now. Waits for nothing, and needs no message: it is
     * right also after a pause of this process, of the agent or of the network.
     */
    public void check() {
        Lease lease = end;
        if (lease == null || !lease.isAhead(agent.clocks)) {
            checkSlowly();
        }
    }

    private synchronized void checkSlowly() {
        if (reason == null && !end.isAhead(agent.clocks)) {
            Lease renewed = end.renewed(agent.clocks);
            if (renewed == null) {
                // A lease that has ended stays ended, also if an older message brings a later end.
                endFor(LEASE_ENDED);
            } else {
                end = renewed;
            }
        }
        if (reason != null) {
            throw new Lost(path, reason, NEXT_STEP);
        }
    }

    /** Whether it is held now. */
    public boolean isHeld() {
        try {
            check();
            return true;
        } catch (Lost error) {
            return false;
        }
    }

    /** Completes when it is lost, not when it is released, in a thread of the client. */
    public CompletableFuture<Lost> lost() {
        return lost;
    }

    private synchronized void endFor(String cause) {
        if (reason != null) {
            return;
        }
        reason = cause;
        end = null;
        if (timer != null) {
            timer.cancel(false);
        }
        if (!cause.equals(RELEASED)) {
            READERS.execute(() -> {
                link.close();
                lost.complete(new Lost(path, cause, NEXT_STEP));
            });
        }
    }

    /** Notices the end of the lease while no message comes. */
    private synchronized void watch() {
        if (isHeld() && end != Lease.NONE) {
            long left = Math.max(end.mono() - agent.clocks.mono(), 1_000_000);
            timer = Link.TIMER.schedule(this::watch, left, TimeUnit.NANOSECONDS);
        }
    }

    void start(Lease sent, Map<String, Object> event) throws InterruptedException {
        if (event.containsKey("lease_until_ns")) {
            anchor = Lease.Anchor.of(agent.clocks, sent, event);
            if (anchor.isWide()) {
                // It has waited: this reading would cost the lease as much.
                readAnchor();
            }
            end = anchor.end(agent.clocks, event);
            if (end == null) {
                endFor(LEASE_ENDED);
            }
            check();
            watch();
        }
        READERS.execute(this::read);
    }

    private void readAnchor() {
        Lease sent = agent.clocks.read();
        anchor = Lease.Anchor.of(agent.clocks, sent, agent.ask(Agent.HEALTH, Link.CALL_LIMIT));
    }

    private void read() {
        try {
            while (true) {
                handle(link.receive(null));
            }
        } catch (RuntimeException error) {
            if (isHeld()) {
                endFor(error instanceof BatonException it ? it.reason() : error.toString());
            }
        } catch (InterruptedException error) {
            endFor(error.getMessage());
        } finally {
            link.close();
        }
    }

    void handle(Map<String, Object> event) {
        switch (Link.text(event, "event")) {
            case "lease" -> {
                if (!anchor.isSameClock()) {
                    try {
                        // The rates of two clocks differ; an old reading would cost more and more.
                        readAnchor();
                    } catch (BatonException error) {
                        // The old one is as sound.
                    }
                }
                Lease later = anchor.end(agent.clocks, event);
                synchronized (this) {
                    boolean isSameBoot = anchor.bootId().equals(event.get("boot_id"));
                    if (isHeld() && later != null && isSameBoot && later.boot() > end.boot()) {
                        end = later;
                    }
                }
            }
            case "lost", "released", "settled", "unknown" -> {
                String cause = Link.text(event, "reason");
                endFor(cause.isEmpty() ? "another request ended it" : cause);
            }
            default -> { }
        }
    }

    /** Ends it with a request, if there is one. A second call does nothing. */
    Map<String, Object> finish(Link.Call call) {
        synchronized (this) {
            if (RELEASED.equals(reason)) {
                return Map.of();
            }
            check();
            // Before the request: no check of another thread is true once it is on its way.
            endFor(RELEASED);
        }
        // An interrupted thread releases too.
        boolean wasInterrupted = Thread.interrupted();
        try {
            return call == null ? Map.of() : agent.ask(call, Link.CALL_LIMIT);
        } finally {
            link.close();
            if (wasInterrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /** Ends it. */
    @Override
    public abstract void close();
}
