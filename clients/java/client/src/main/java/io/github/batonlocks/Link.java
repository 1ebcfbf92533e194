package io.github.batonlocks;

import io.github.batonlocks.BatonException.Lost;
import io.github.batonlocks.BatonException.NotAcquired;
import io.github.batonlocks.BatonException.Refused;
import io.github.batonlocks.BatonException.Unavailable;
import io.github.batonlocks.BatonException.Unknown;
import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** Connection with one request. A thread that is interrupted while it waits closes it. */
final class Link implements AutoCloseable {
    /** Longest wait for an answer, beyond what the caller wants to wait. */
    static final Duration CALL_LIMIT = Duration.ofMinutes(1);
    static final Duration NO_LIMIT = ChronoUnit.FOREVER.getDuration();
    private static final int MAX_MESSAGE = 16 << 20;

    /** A request, and the longest wait for an object of its answer. */
    record Call(String method, String url, Duration limit, Map<String, Object> fields) {
        Call(String method, String url, Object... fields) {
            this(method, url, CALL_LIMIT, Json.object(fields));
        }
    }

    final Path agent;
    private final SocketChannel channel;
    private final InputStream input;
    private int status;

    /** Sends a request. Throws an error only where nobody listens. */
    Link(Path agent, Call call) {
        this.agent = agent;
        try {
            channel = SocketChannel.open(UnixDomainSocketAddress.of(agent));
        } catch (IOException | RuntimeException error) {
            throw Unavailable.silent(agent, error, false);
        }
        input = new BufferedInputStream(Channels.newInputStream(channel));
        String body = Json.write(call.fields());
        // The answer to HTTP/1.0 ends with the connection, and has no chunks.
        String request = "%s %s HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s"
                .formatted(call.method(), call.url(), body.length(), body);
        try {
            Channels.newOutputStream(channel).write(request.getBytes(StandardCharsets.US_ASCII));
        } catch (IOException error) {
            // No end: the agent may have answered before it has read all.
        }
    }

    /** Returns the longest wait for what may wait so long itself; null for as long as it takes. */
    static Duration limit(Duration wait) { return wait == null ? NO_LIMIT : wait.plus(CALL_LIMIT); }

    /**
     * Waits for an object. Throws the error that the agent names, or that it is silent: also to a
     * thread that is interrupted, which keeps its flag.
     */
    Map<String, Object> receive(Duration limit) {
        var timer = new CompletableFuture<Void>();
        timer.orTimeout(TimeUnit.NANOSECONDS.convert(limit), TimeUnit.NANOSECONDS)
                .exceptionally(late -> { close(); return null; });
        try {
            if (status == 0) {
                readHead();
            }
            String line = line();
            if (line.isEmpty() && status < 400) {
                throw new EOFException("it has ended the connection");
            }
            var found = line.isEmpty() ? Json.object("thing", "HTTP status " + status)
                    : Json.read(line);
            if (status >= 400 || "error".equals(found.get("event"))) {
                throw failure(found);
            }
            return found;
        } catch (IOException | IllegalArgumentException error) {
            throw Unavailable.silent(agent, error, true);
        } finally {
            timer.complete(null);
        }
    }

    private void readHead() throws IOException {
        String first = line();
        if (!first.matches("HTTP/1\\.\\d \\d{3}( .*)?")) {
            throw new IOException("the answer is not HTTP");
        }
        while (!line().isEmpty()) {
            // No field matters here.
        }
        status = Integer.parseInt(first.substring(9, 12));
    }

    /** Returns the next line; an empty one at the end. */
    private String line() throws IOException {
        var line = new ByteArrayOutputStream();
        for (int c = input.read(); c >= 0 && c != '\n'; c = input.read()) {
            if (line.size() == MAX_MESSAGE) {
                throw new IOException("the answer is too large");
            }
            line.write(c);
        }
        return line.toString(StandardCharsets.UTF_8).strip();
    }

    /** Throws that this thread was interrupted, where it was. */
    static void throwIfInterrupted() throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException("interrupted while it waited for the agent");
        }
    }

    private static BatonException failure(Map<String, Object> answer) {
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

    @Override
    public void close() {
        try {
            channel.close();
        } catch (IOException error) {
            // It is closed all the same.
        }
    }
}
