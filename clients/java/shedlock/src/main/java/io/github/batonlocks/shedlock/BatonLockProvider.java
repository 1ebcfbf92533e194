package io.github.batonlocks.shedlock;

import io.github.batonlocks.Agent;
import io.github.batonlocks.BatonException.Lost;
import io.github.batonlocks.BatonException.NotAcquired;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Optional;
import net.javacrumbs.shedlock.core.AbstractSimpleLock;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;

/**
 * ShedLock's {@code LockProvider} on Baton, through the agent of this machine. A lock lasts for
 * {@code lockAtMostFor} as long as the agent runs, also beyond the end of the program.
 */
public final class BatonLockProvider implements ExtensibleLockProvider {
    private static final Duration SHORTEST = Duration.ofMillis(1);

    private final Agent agent;
    private final String folder;

    /** Locks below {@code /shedlock}, through the agent of this user or of the machine. */
    public BatonLockProvider() {
        this(new Agent(), "/shedlock");
    }

    /** Locks below a folder. */
    public BatonLockProvider(Agent agent, String folder) {
        this.agent = agent;
        this.folder = folder;
    }

    /** Returns the path of the lock of a name. */
    public String path(String name) {
        String node = URLEncoder.encode(name, StandardCharsets.UTF_8).replace("+", "%20");
        // A znode has none of these names.
        return folder + "/" + (node.matches("\\.\\.?") ? node.replace(".", "%2E") : node);
    }

    @Override
    public Optional<SimpleLock> lock(LockConfiguration configuration) {
        String path = path(configuration.getName());
        try {
            Duration ttl = atLeast(configuration.getLockAtMostFor());
            long token = agent.hold(path, ttl, Duration.ZERO, null);
            return Optional.of(new Held(configuration, path, token));
        } catch (NotAcquired taken) {
            return Optional.empty();
        }
    }

    private static Duration atLeast(Duration time) {
        return time.compareTo(SHORTEST) < 0 ? SHORTEST : time;
    }

    /** Lock that is held. */
    private final class Held extends AbstractSimpleLock {
        private final String path;
        private final long token;

        Held(LockConfiguration configuration, String path, long token) {
            super(configuration);
            this.path = path;
            this.token = token;
        }

        @Override
        protected void doUnlock() {
            // Read first: it is the clock's time where nothing is left.
            var until = lockConfiguration.getUnlockTime();
            var rest = Duration.between(ClockProvider.now(), until);
            try {
                if (rest.compareTo(SHORTEST) < 0) {
                    agent.releaseHold(path, token);
                } else {
                    agent.holdOn(path, rest, token);
                }
            } catch (Lost error) {
                // Its time was over.
            }
        }

        @Override
        protected Optional<SimpleLock> doExtend(LockConfiguration longer) {
            try {
                agent.holdOn(path, atLeast(longer.getLockAtMostFor()), token);
                return Optional.of(new Held(longer, path, token));
            } catch (Lost error) {
                return Optional.empty();
            }
        }
    }
}
