package io.github.batonlocks;

import io.github.batonlocks.BatonException.NotAcquired;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;

/**
 * View of an acquisition as a {@link Lock}. It is not reentrant and has no conditions; any thread
 * may unlock it. The lock can be lost while it is held: {@link #check} says so, and
 * {@link #unlock} throws {@link BatonException.Lost} then.
 */
public final class LockView implements Lock {
    private final Acquisition<?> acquisition;
    private final AtomicReference<Held> held = new AtomicReference<>();

    LockView(Acquisition<?> acquisition) { this.acquisition = acquisition; }

    /** Throws {@link BatonException.Lost} if the lock was lost. */
    public void check() { current(held.get()).check(); }

    private static Held current(Held held) {
        return Optional.ofNullable(held).orElseThrow(
                () -> new IllegalMonitorStateException("the lock is not held"));
    }

    private boolean acquire(Duration wait) throws InterruptedException {
        try {
            held.set(acquisition.acquire(wait));
            return true;
        } catch (NotAcquired error) {
            return false;
        }
    }

    /** An interrupt starts the wait again, and is kept for the caller. */
    private boolean acquireUninterruptibly(Duration wait) {
        try {
            return acquire(wait);
        } catch (InterruptedException error) {
            try {
                return acquireUninterruptibly(wait);
            } finally {
                Thread.currentThread().interrupt();
            }
        }
    }

    @Override
    public void lock() { acquireUninterruptibly(null); }

    @Override
    public void lockInterruptibly() throws InterruptedException { acquire(null); }

    @Override
    public boolean tryLock() { return acquireUninterruptibly(Duration.ZERO); }

    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        return acquire(Duration.ofNanos(unit.toNanos(Math.max(time, 0))));
    }

    @Override
    public void unlock() { current(held.getAndSet(null)).close(); }

    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException("a distributed lock has no conditions");
    }
}
