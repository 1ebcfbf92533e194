package io.github.batonlocks.shedlock;

import static org.assertj.core.api.Assertions.assertThat;

import io.github.batonlocks.Agent;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Clock;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.util.Comparator;
import java.util.List;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.test.support.AbstractExtensibleLockProviderIntegrationTest;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** ShedLock's own tests of a provider, with an agent of the command that BATON names. */
class BatonLockProviderTest extends AbstractExtensibleLockProviderIntegrationTest {
    private static Path folder;
    private static Process process;
    private static Agent agent;

    @BeforeAll
    static void startAgent() throws Exception {
        folder = Files.createTempDirectory("baton");
        Path socket = folder.resolve("agent.sock");
        process = new ProcessBuilder(System.getenv("BATON"), "--data-dir",
                folder.resolve("data").toString(), "agent", "--socket", socket.toString())
                .redirectError(ProcessBuilder.Redirect.DISCARD).start();
        // It prints one line once it listens.
        var output = new BufferedReader(new InputStreamReader(process.getInputStream()));
        assertThat(output.readLine()).isNotNull();
        agent = new Agent(socket);
    }

    @AfterAll
    static void stopAgent() throws Exception {
        process.destroy();
        process.waitFor();
        // The agent has started a server of this folder, whose number is in its file.
        String lock = Files.readString(folder.resolve("data").resolve("LOCK"));
        ProcessHandle.of(Long.parseLong(lock.trim().split("\\s+")[0])).ifPresent(server -> {
            server.destroy();
            server.onExit().join();
        });
        try (var files = Files.walk(folder)) {
            files.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
        }
    }

    @Override
    protected ExtensibleLockProvider getLockProvider() {
        return new BatonLockProvider(agent, "/jobs");
    }

    @Override
    protected void assertUnlocked(String name) {
        assertThat(holders(name)).isEmpty();
    }

    @Override
    protected void assertLocked(String name) {
        assertThat(holders(name)).hasSize(1);
    }

    private List<?> holders(String name) {
        String path = new BatonLockProvider(agent, "/jobs").path(name);
        return (List<?>) agent.locks(path).get("holders");
    }

    @Test
    void unlockingReleasesTheLockHoweverLongItTakes() {
        // Of ShedLock's clock, which shows whole milliseconds, two readings often differ by one.
        ClockProvider.setClock(new Clock() {
            private long passed;

            @Override
            public Instant instant() {
                passed += 60_000;
                return Instant.now().plusMillis(passed);
            }

            @Override
            public ZoneId getZone() {
                return ZoneOffset.UTC;
            }

            @Override
            public Clock withZone(ZoneId zone) {
                return this;
            }
        });
        try {
            var configuration = new LockConfiguration(
                    ClockProvider.now(), "slow", Duration.ofDays(1), Duration.ZERO);
            getLockProvider().lock(configuration).orElseThrow().unlock();
            assertUnlocked("slow");
        } finally {
            ClockProvider.setClock(Clock.systemUTC());
        }
    }

    @Test
    void anyNameIsALock() {
        for (String name : List.of("a/b", "a b", "ü+%", ".", "..")) {
            var configuration = new LockConfiguration(
                    Instant.now(), name, Duration.ofSeconds(20), Duration.ZERO);
            var lock = getLockProvider().lock(configuration).orElseThrow();
            assertLocked(name);
            assertThat(getLockProvider().lock(configuration)).isEmpty();
            lock.unlock();
            assertUnlocked(name);
        }
    }
}
