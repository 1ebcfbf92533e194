package io.github.batonlocks;

import java.time.Instant;
import java.util.Map;
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

    /** Returns the error of an answer; null where the agent has sent nothing but the status. */
    static BatonException of(int status, Map<String, Object> answer) {
        if (status == 405) {
            // An agent of the version before has no such requests.
            return new Refused("the agent", "it is older than this client", "restart it");
        } else if (answer == null) {
            return new Refused("the agent", "HTTP status " + status, "see its log");
        }
        String thing = Json.text(answer, "thing");
        String cause = Json.text(answer, "cause");
        String next = Json.text(answer, "next_step");
        // An agent does not remember what has ended: a guard that it does not know is a lost one.
        return switch (thing.startsWith("guard ") ? "lost" : Json.text(answer, "code")) {
            case "not_acquired" ->
                    new NotAcquired(thing, cause, next, Json.text(answer, "held_by"));
            case "unavailable" -> new Unavailable(thing, cause, next,
                    answer.get("unavailable_for_ms") instanceof Long time
                            ? Instant.now().minusMillis(time) : null);
            case "lost" -> new Lost(thing, cause, next);
            case "unknown" -> new Unknown(thing, cause, next);
            default -> new Refused(thing, cause, next);
        };
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
        /** Whether it is the agent that does not answer. */
        boolean isSilence;

        Unavailable(String thing, String reason, String next, Instant since) {
            super(thing, reason, next);
            this.since = since;
        }

        Unavailable(Object agent, Object cause) {
            this(agent.toString(), "no answer of the agent: " + cause, "start it: baton agent",
                    Instant.now());
            isSilence = true;
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

        /** The answer to a change has not come. */
        Unknown(String thing, Unavailable error) {
            this(thing, error.reason(), "read before you repeat it");
        }
    }

    /** The request cannot be carried out as it is. */
    public static final class Refused extends BatonException {
        Refused(String thing, String reason, String next) { super(thing, reason, next); }
    }
}
