package io.github.batonlocks;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;

/** Instant on the clocks of leases, in nanoseconds: a reading, or the end of a lease. */
record Lease(long mono, long wall, long boot, boolean hasBoot) {
    /** End of what has no lease. */
    static final Lease NONE = new Lease(0, Long.MAX_VALUE, Long.MAX_VALUE, false);
    /** End that has come. */
    static final Lease OVER = new Lease(0, Long.MIN_VALUE, Long.MIN_VALUE, false);

    /** The clocks. A class of their own, so that tests can set them. */
    static class Clocks {
        private final byte[] bytes = new byte[64];
        private RandomAccessFile uptime;
        private String bootId;

        /** A monotonic clock, which may stand still while the machine sleeps. */
        long mono() { return System.nanoTime(); }

        /** The wall clock, which goes on then, but may be set; rounded down to its grain. */
        long wall() { return System.currentTimeMillis() * 1_000_000; }

        long wallGrain() { return 1_000_000; }

        /** A clock that goes on then and cannot be set, rounded down to the grain; -1 if none. */
        synchronized long boot() {
            try {
                uptime = uptime == null ? new RandomAccessFile("/proc/uptime", "r") : uptime;
                // Each lock reads it: a file that stays open costs less.
                uptime.seek(0);
                String text = new String(bytes, 0, uptime.read(bytes), StandardCharsets.US_ASCII);
                return new BigDecimal(text.split(" ")[0]).movePointRight(9).longValue();
            } catch (IOException error) {
                return -1;
            }
        }

        long grain() { return 10_000_000; }

        synchronized String bootId() {
            try {
                String file = "/proc/sys/kernel/random/boot_id";
                bootId = bootId == null ? Files.readString(Path.of(file)).strip() : bootId;
                return bootId;
            } catch (IOException error) {
                return "";
            }
        }

        Lease read() {
            long mono = mono();
            long wall = wall();
            long boot = boot();
            return new Lease(mono, wall, boot < 0 ? mono : boot, boot >= 0);
        }
    }

    Lease plus(long left) {
        return new Lease(mono + left, wall + left, boot + left, hasBoot);
    }

    /** A machine that has slept has moved its wall clock on. */
    boolean isAhead(Clocks clocks) {
        return this == NONE
                || clocks.mono() - mono < 0 && clocks.wall() + clocks.wallGrain() < wall;
    }

    /**
     * Returns the same end by the clocks of now: the wall clock may have been set, and the
     * monotonic one may have stood still. Returns {@link #OVER} once it has come.
     */
    Lease renewed(Clocks clocks) {
        Lease now = clocks.read();
        long rest = boot - now.boot - clocks.grain();
        boolean isOver = !hasBoot || !now.hasBoot || now.mono - mono >= 0 || rest <= 0;
        return isOver ? OVER : new Lease(now.mono + rest, now.wall + rest, boot, true);
    }

    /**
     * A reading of the agent's clock, which it made after this process had read {@code sent}.
     *
     * <p>What ends so long after the agent's reading ends no earlier than so long after
     * {@code sent}, however late a message is. Two clocks of one boot run at one rate, others
     * within 1 %.
     */
    record Anchor(Lease sent, long agent, String bootId, boolean isWide, boolean isSameClock) {
        static Anchor of(Clocks clocks, Lease sent, Map<String, Object> answer) {
            Lease received = clocks.read();
            String own = clocks.bootId();
            long agent = Json.number(answer, "now_ns");
            boolean isSame = !own.isEmpty() && own.equals(answer.get("boot_id")) && sent.hasBoot
                    && sent.boot <= agent && agent <= received.boot + clocks.grain();
            boolean isWide = received.mono - sent.mono > 100_000_000;
            return new Anchor(sent, agent, Json.text(answer, "boot_id"), isWide, isSame);
        }

        /** Returns the end of a lease on these clocks, never too late. */
        Lease end(Clocks clocks, Map<String, Object> event) {
            long left = Json.number(event, "lease_until_ns") - agent;
            Lease end = sent.plus(isSameClock ? left : left / 100 * 99);
            // The machine may have slept since the anchor was read.
            return end.hasBoot ? end.renewed(clocks) : end;
        }
    }
}
