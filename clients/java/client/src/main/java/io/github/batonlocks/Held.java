package io.github.batonlocks;

import io.github.batonlocks.BatonException.Lost;
import io.github.batonlocks.BatonException.Unavailable;
import io.github.batonlocks.BatonException.Unknown;
import java.io.IOException;
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
    static final ExecutorService THREADS = Executors.newCachedThreadPool(task -> {
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
    volatile Lease end = Lease.NONE;
    private volatile String reason;
    private volatile Lease.Anchor anchor;
    /** The event that ends it. */
    private volatile Map<String, Object> last;

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
                lose("the lease ended: no server answered in time, or this process was paused");
            }
        }
        return reason == null;
    }

    /** Completes when it is lost, not when it is released, in a thread of the client. */
    public CompletableFuture<Lost> lost() { return lost; }

    private synchronized void lose(String cause) {
        if (reason == null) {
            reason = cause;
            end = Lease.OVER;
            grant.link().close();
            lost.completeAsync(() -> new Lost(path(), cause, NEXT_STEP), THREADS);
        }
    }

    /** Returns the nanoseconds until the end of its lease. */
    long left() {
        Lease lease = isHeld() ? end : Lease.NONE;
        return lease == Lease.NONE ? Long.MAX_VALUE : lease.mono() - grant.clocks().mono();
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
        Watcher.add(this);
    }

    private void readAnchor() {
        Lease sent = grant.clocks().read();
        anchor = Lease.Anchor.of(grant.clocks(), sent, grant.agent().ask(Agent.HEALTH));
    }

    /** Handles the events that have come. Only the watcher calls it. */
    void read() {
        synchronized (grant.link()) {
            try {
                if (reason == null) {
                    grant.link().watch(this);
                }
                while (last == null && grant.link().isWatched()) {
                    var event = grant.link().receive(Link.NO_LIMIT);
                    if (event == null) {
                        return;
                    }
                    handle(event);
                }
            } catch (IOException | RuntimeException error) {
                lose(error instanceof BatonException it ? it.reason() : error.toString());
            }
        }
    }

    void handle(Map<String, Object> event) {
        if (ENDS.contains(Json.text(event, "event"))) {
            last = event;
            String cause = Json.text(event, "reason");
            lose(cause.isEmpty() ? "another request ended it" : cause);
        } else if ("lease".equals(event.get("event")) && anchor.isSameClock()) {
            extend(event);
        } else if ("lease".equals(event.get("event"))) {
            THREADS.execute(() -> extend(event));
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

    /** Ends it by a request, or else by the end of its own. A second call does nothing. */
    void finish(Link.Call call) {
        synchronized (this) {
            if (RELEASED.equals(reason)) {
                return;
            }
            check();
            // Before the end: no check of another thread is true once that is on its way.
            reason = RELEASED;
            end = Lease.OVER;
        }
        // An interrupted thread releases too.
        boolean wasInterrupted = Thread.interrupted();
        try {
            if (call == null) {
                endRequest();
            } else {
                grant.agent().ask(call);
            }
        } finally {
            grant.link().giveBack();
            if (wasInterrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private void endRequest() {
        String thing = "release of " + path();
        try {
            grant.link().end();
            while (last == null) {
                handle(grant.link().receive(Link.CALL_LIMIT));
            }
        } catch (Unavailable error) {
            throw new Unknown(thing, error);
        }
        if ("lost".equals(last.get("event"))) {
            throw new Lost(path(), Json.text(last, "reason"), NEXT_STEP);
        } else if ("unknown".equals(last.get("event"))) {
            throw new Unknown(thing, "no server confirms it", Json.text(last, "next_step"));
        }
    }

    /** Ends it, and waits until a server has confirmed that. A second call does nothing. */
    @Override
    public void close() { finish(null); }
}
