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
    private static final long MILLISECOND = TimeUnit.MILLISECONDS.toNanos(1);
    /** Longest pause: waits are longer than their limits by as much at most. */
    private static final long MAX_PAUSE = TimeUnit.SECONDS.toNanos(10);
    /** Pause until what was acquired meanwhile is watched. */
    private static final long PAUSE = 20 * MILLISECOND;
    /** Whether the thread pauses for longer, so that the next one acquired wakes it. */
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
        long look = System.nanoTime();
        while (SELECTOR.isOpen()) {
            // Before the count: what is acquired after it wakes this thread.
            isResting = true;
            // What was acquired before this pause is watched after it.
            int count = ADDED.size();
            isResting = count == 0;
            long pause = count == 0 ? look - System.nanoTime() : PAUSE;
            try {
                SELECTOR.select(key -> ((Held) key.attachment()).read(),
                        Math.max(pause / MILLISECOND, 1));
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
            for (; count > 0; count--) {
                ADDED.remove().read();
                look = System.nanoTime();
            }
            if (System.nanoTime() - look >= 0) {
                look = System.nanoTime() + SELECTOR.keys().stream()
                        .mapToLong(key -> ((Held) key.attachment()).left())
                        .reduce(MAX_PAUSE, Math::min);
                closeLate();
            }
        }
    }
}
