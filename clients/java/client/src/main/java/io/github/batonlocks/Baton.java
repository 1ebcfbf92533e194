package io.github.batonlocks;

/** Locks and the rest through the agent of this user, or else of the machine. */
public final class Baton {
    private static final Agent AGENT = new Agent();

    private Baton() {}

    /** A lock: exclusive, unless it is shared by readers or slots. */
    public static Acquisition<Guard> lock(String path) { return AGENT.lock(path); }

    /** The agent, for all else. */
    public static Agent agent() { return AGENT; }
}
