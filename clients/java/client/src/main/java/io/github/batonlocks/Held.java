package io.github.batonlocks;

import io.github.batonlocks.BatonException.Lost;
import java.util.Map;
import java.util.Set;
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
    private static final Set<String> ENDS = Set.of("lost", "released", "settled", "unknown");
    private static final ExecutorService READERS = Executors.newCachedThreadPool(Link.DAEMONS);

    /** The answer to a request that holds something, and its first event. */
    record Grant(Agent agent, String path, Link link, Map<String, Object> event) {
        Lease.Clocks clocks() { return agent.clocks; }
    }

    final Grant grant;
    private final CompletableFuture<Lost> lost = new CompletableFuture<>();
    /** End of the lease; null once it is held no longer. */
    private volatile Lease end = Lease.NONE;
    private volatile String reason;
    private Lease.Anchor anchor;
    private Future<?> timer = CompletableFuture.completedFuture(null);

    Held(Grant grant) { this.grant = grant; }

    /** The path of the znode. */
    public String path() { return grant.path(); }

    /**
     * Throws {@link Lost} unless it is held now. Waits for nothing, and needs no message: it is
     * right also after a pause of this process, of the agent or of the network.
     */
    public void check() {
        if (!isHeld()) {
            throw new Lost(path(), reason, NEXT_STEP);
        }
    }

    /** Whether it is held now. */
    public boolean isHeld() {
        Lease lease = end;
        return lease != null && lease.isAhead(grant.clocks()) || isStillHeld();
    }

    private synchronized boolean isStillHeld() {
        if (reason == null && !end.isAhead(grant.clocks())) {
            // A lease that has ended stays ended, also if an older message brings a later end.
            setEnd(end.renewed(grant.clocks()));
        }
        return reason == null;
    }

    private void setEnd(Lease found) {
        end = found;
        if (found == null) {
            endFor(LEASE_ENDED);
        }
    }

    /** Completes when it is lost, not when it is released, in a thread of the client. */
    public CompletableFuture<Lost> lost() { return lost; }

    private synchronized void endFor(String cause) {
        if (reason != null) {
            return;
        }
        reason = cause;
        end = null;
        timer.cancel(false);
        if (!cause.equals(RELEASED)) {
            READERS.execute(() -> {
                grant.link().close();
                lost.complete(new Lost(path(), cause, NEXT_STEP));
            });
        }
    }

    /** Notices the end of the lease while no message comes. */
    private synchronized void watch() {
        if (isHeld() && end != Lease.NONE) {
            long left = Math.max(end.mono() - grant.clocks().mono(), 1_000_000);
            timer = Link.TIMER.schedule(this::watch, left, TimeUnit.NANOSECONDS);
        }
    }

    void start(Lease sent) {
        if (grant.event().containsKey("lease_until_ns")) {
            anchor = Lease.Anchor.of(grant.clocks(), sent, grant.event());
            if (anchor.isWide()) {
                // It has waited: this reading would cost the lease as much.
                readAnchor();
            }
            setEnd(anchor.end(grant.clocks(), grant.event()));
            check();
            watch();
        }
        READERS.execute(this::read);
    }

    private void readAnchor() {
        Lease sent = grant.clocks().read();
        anchor = Lease.Anchor.of(grant.clocks(), sent, grant.agent().ask(Agent.HEALTH));
    }

    private void read() {
        try {
            while (true) {
                handle(grant.link().receive(Link.NO_LIMIT));
            }
        } catch (RuntimeException | InterruptedException error) {
            if (isHeld()) {
                endFor(error instanceof BatonException it ? it.reason() : error.toString());
            }
        } finally {
            grant.link().close();
        }
    }

    void handle(Map<String, Object> event) {
        if (ENDS.contains(Json.text(event, "event"))) {
            String cause = Json.text(event, "reason");
            endFor(cause.isEmpty() ? "another request ended it" : cause);
        } else if ("lease".equals(event.get("event"))) {
            extend(event);
        }
    }

    private void extend(Map<String, Object> event) {
        try {
            if (!anchor.isSameClock()) {
                // The rates of two clocks differ; an old reading would cost more and more.
                readAnchor();
            }
        } catch (BatonException error) {
            // The old one is as sound.
        }
        Lease later = anchor.end(grant.clocks(), event);
        boolean isSameBoot = anchor.bootId().equals(event.get("boot_id"));
        synchronized (this) {
            if (isHeld() && later != null && isSameBoot && later.boot() > end.boot()) {
                end = later;
            }
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
            return call == null ? Map.of() : grant.agent().ask(call);
        } finally {
            grant.link().close();
            if (wasInterrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /** Ends it. */
    @Override
    public abstract void close();
}
