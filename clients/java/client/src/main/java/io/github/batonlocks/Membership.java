package io.github.batonlocks;

/** Membership. It has no lease: its loss may be noticed late. */
public final class Membership extends Held {
    Membership(Grant grant) { super(grant); }

    /** Leaves, and waits until the member is gone. */
    @Override
    public void close() { finish(null); }
}
