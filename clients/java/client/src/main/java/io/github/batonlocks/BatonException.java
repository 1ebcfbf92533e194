package io.github.batonlocks;

import java.time.Instant;
import java.util.Optional;

/** Error of the client. Names the thing, the cause and the next step, in that order. */
@SuppressWarnings("serial")
public abstract sealed class BatonException extends RuntimeException {
    private final String thing;
    private final String reason;
    private final String nextStep;

    private BatonException(String thing, String reason, String nextStep) {
        super(thing + ": " + reason + "; " + nextStep);
        this.thing = thing;
        this.reason = reason;
        this.nextStep = nextStep;
    }

    /** The thing that the error is about. */
    public String thing() { return thing; }

    /** The cause, in words. */
    public String reason() { return reason; }

    /** The next step. */
    public String nextStep() { return nextStep; }

    /** Somebody else holds it, and the caller did not want to wait longer. */
    public static final class NotAcquired extends BatonException {
        private final String heldBy;

        NotAcquired(String thing, String reason, String next, String heldBy) {
            super(thing, reason, next);
            this.heldBy = heldBy.isEmpty() ? null : heldBy;
        }

        /** The holder's name, where it is known. */
        public Optional<String> heldBy() { return Optional.ofNullable(heldBy); }
    }

    /** The agent or its servers do not answer. */
    public static final class Unavailable extends BatonException {
        private final Instant since;
        /** Whether the agent was sent all, and then was silent. */
        boolean wasSent;

        Unavailable(String thing, String reason, String next, Instant since) {
            super(thing, reason, next);
            this.since = since;
        }

        static Unavailable silent(Object agent, Object cause, boolean wasSent) {
            String reason = "no answer of the agent: " + cause;
            var error = new Unavailable(agent.toString(), reason, "start it: baton agent",
                    Instant.now());
            error.wasSent = wasSent;
            return error;
        }

        /** The time since when they do not, where it is known. */
        public Optional<Instant> since() { return Optional.ofNullable(since); }
    }

    /** The lock, term, claim or membership is held no longer. */
    public static final class Lost extends BatonException {
        Lost(String thing, String reason, String next) { super(thing, reason, next); }
    }

    /** A change may or may not have been applied: read before you repeat it. */
    public static final class Unknown extends BatonException {
        Unknown(String thing, String reason, String next) { super(thing, reason, next); }
    }

    /** The request cannot be carried out as it is. */
    public static final class Refused extends BatonException {
        Refused(String thing, String reason, String next) { super(thing, reason, next); }
    }
}
