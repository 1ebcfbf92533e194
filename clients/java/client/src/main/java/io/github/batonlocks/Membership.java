package io.github.batonlocks;

/** Membership. It has no lease: its loss may be noticed late. */
public final class Membership extends Held {
    Membership(Agent agent, String path, Link link) {
        super(agent, path, link);
    }

    /** Leaves. */
    @Override
    public void close() {
        finish(null);
    }
}
