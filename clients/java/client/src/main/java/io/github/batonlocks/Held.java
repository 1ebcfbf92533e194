package io.github.batonlocks;

import io.github.batonlocks.BatonException.Lost;
import java.time.Duration;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** Something that is held as long as its response is open. */
public abstract class Held implements AutoCloseable {
    static final String NEXT_STEP = "stop what it protects, then acquire it again";
    private static final String RELEASED = "it was released";
    private static final Set<String> ENDS = Set.of("lost", "released", "settled", "unknown");
    private static final ExecutorService READERS = Executors.newCachedThreadPool(task -> {
        var thread = new Thread(task, "baton");
        thread.setDaemon(true);
        return thread;
    });

    /** The answer to a request that holds something, and its first event. */
    record Grant(Agent agent, String path, Link link, Map<String, Object> event) {
        Lease.Clocks clocks() { return agent.clocks; }
    }

    final Grant grant;
    private final CompletableFuture<Lost> lost = new CompletableFuture<>();
    /** End of the lease. */
    private volatile Lease end = Lease.NONE;
    private volatile String reason;
    private Lease.Anchor anchor;

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
        return end.isAhead(grant.clocks()) || isStillHeld();
    }

    private synchronized boolean isStillHeld() {
        if (reason == null && !end.isAhead(grant.clocks())) {
            // A lease that has ended stays ended, also if an older message brings a later end.
            end = end.renewed(grant.clocks());
            if (end == Lease.OVER) {
                endFor("the lease ended: no server answered in time, or this process was paused");
            }
        }
        return reason == null;
    }

    /** Completes when it is lost, not when it is released, in a thread of the client. */
    public CompletableFuture<Lost> lost() { return lost; }

    private synchronized void endFor(String cause) {
        if (reason != null) {
            return;
        }
        reason = cause;
        end = Lease.OVER;
        if (!cause.equals(RELEASED)) {
            grant.link().close();
            lost.completeAsync(() -> new Lost(path(), cause, NEXT_STEP), READERS);
        }
    }

    /** Returns the longest wait for a message: the lease may end while none comes. */
    private Duration left() {
        Lease lease = end;
        return lease == Lease.NONE || lease == Lease.OVER ? Link.NO_LIMIT
                : Duration.ofNanos(Math.max(lease.mono() - grant.clocks().mono(), 1_000_000));
    }

    void start(Lease sent) {
        if (grant.event().containsKey("lease_until_ns")) {
            anchor = Lease.Anchor.of(grant.clocks(), sent, grant.event());
            if (anchor.isWide()) {
                // It has waited: this reading would cost the lease as much.
                readAnchor();
            }
            end = anchor.end(grant.clocks(), grant.event());
            check();
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
                handle(grant.link().receive(left()));
            }
        } catch (RuntimeException error) {
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
            if (isHeld() && isSameBoot && later.boot() > end.boot()) {
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
