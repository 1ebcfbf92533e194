package io.github.batonlocks;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.channels.Selector;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;

/**
 * Thread that reads the events of all that is held, and notices the ends of leases and of waits.
 * What is held for a short time never gets to it: nothing wakes it for each lock.
 */
final class Watcher {
    static final Selector SELECTOR;
    /** Connections on which threads wait. */
    static final Set<Link> WAITING = ConcurrentHashMap.newKeySet();
    private static final Queue<Held> ADDED = new ConcurrentLinkedQueue<>();
    private static final long SECOND = TimeUnit.SECONDS.toNanos(1);
    /** Pause in milliseconds until what was acquired meanwhile is watched. */
    private static final long PAUSE = 20;
    /** Whether nothing was acquired for a second, so that the pause is longer. */
    private static volatile boolean isResting;

    static {
        try {
            SELECTOR = Selector.open();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        Held.THREADS.execute(Watcher::run);
    }

    private Watcher() {}

    static void add(Held held) {
        ADDED.add(held);
        if (isResting) {
            isResting = false;
            SELECTOR.wakeup();
        }
    }

    /** Ends the waits that are longer than their limits. */
    static void closeLate() { WAITING.stream().filter(Link::isLate).forEach(Link::close); }

    private static void run() {
        long rest = System.nanoTime() + SECOND;
        long look = rest;
        while (SELECTOR.isOpen()) {
            long now = System.nanoTime();
            isResting = now - rest > 0;
            long pause = isResting && ADDED.isEmpty() ? (look - now) / 1_000_000 : PAUSE;
            int count;
            try {
                SELECTOR.select(key -> ((Held) key.attachment()).read(), Math.max(pause, 1));
                count = ADDED.size();
                // Forgets the earlier use of the connections of these.
                SELECTOR.selectNow(key -> { });
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
            now = System.nanoTime();
            for (; count > 0; count--) {
                ADDED.remove().watch();
                look = now;
                rest = now + SECOND;
            }
            if (now - look >= 0) {
                long left = SELECTOR.keys().stream().mapToLong(it -> ((Held) it.attachment()).left())
                        .min().orElse(Long.MAX_VALUE);
                // Waits are longer than their limits by ten seconds at most.
                look = now + Math.min(Math.max(left, 1_000_000), 10 * SECOND);
                closeLate();
            }
        }
    }
}
