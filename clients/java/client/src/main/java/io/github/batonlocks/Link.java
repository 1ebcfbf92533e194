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
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;

/** Connection with one request. A thread that is interrupted while it waits closes it. */
final class Link implements AutoCloseable {
    /** Longest wait for an answer, beyond what the caller wants to wait. */
    static final Duration CALL_LIMIT = Duration.ofMinutes(1);
    static final Duration NO_LIMIT = ChronoUnit.FOREVER.getDuration();
    static final ThreadFactory DAEMONS = task -> {
        var thread = new Thread(task, "baton");
        thread.setDaemon(true);
        return thread;
    };
    static final ScheduledThreadPoolExecutor TIMER = new ScheduledThreadPoolExecutor(1, DAEMONS);
    private static final int MAX_MESSAGE = 16 << 20;

    static {
        TIMER.setRemoveOnCancelPolicy(true);
    }

    /** A request, and the longest wait for an object of its answer. */
    record Call(String method, String url, Duration limit, Map<String, Object> fields) {
        Call(String method, String url, Object... fields) {
            this(method, url, CALL_LIMIT, Json.object(fields));
        }
    }

    private final Path agent;
    private final SocketChannel channel;
    private final InputStream input;
    private int budget;
    private int status;
    private boolean isChunked;
    /** Bytes left of the body, or of the chunk. */
    private int left;

    Link(Path agent, Call call) {
        this.agent = agent;
        try {
            channel = SocketChannel.open(UnixDomainSocketAddress.of(agent));
        } catch (IOException | RuntimeException error) {
            throw Unavailable.silent(agent, error, false);
        }
        input = new BufferedInputStream(Channels.newInputStream(channel));
        String body = Json.write(call.fields());
        String request = "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
                .formatted(call.method(), call.url(), body.length(), body);
        try {
            Channels.newOutputStream(channel).write(request.getBytes(StandardCharsets.US_ASCII));
        } catch (IOException error) {
            // No end: the agent may have answered before it has read all.
        }
    }

    /** Returns the longest wait for what may wait so long itself; null for as long as it takes. */
    static Duration limit(Duration wait) { return wait == null ? NO_LIMIT : wait.plus(CALL_LIMIT); }

    /** Waits for an object. Throws the error that the agent names, or that it is silent. */
    Map<String, Object> receive(Duration limit) throws InterruptedException {
        long nanos = TimeUnit.NANOSECONDS.convert(limit);
        var timer = TIMER.schedule(this::close, nanos, TimeUnit.NANOSECONDS);
        try {
            budget = MAX_MESSAGE;
            if (status == 0) {
                readHead();
            }
            String line = line();
            if (line.isBlank() && status < 400) {
                throw new EOFException("it has ended the connection");
            }
            var found = line.isBlank() ? Json.object("thing", "HTTP status " + status)
                    : Json.read(line);
            if (status >= 400 || "error".equals(found.get("event"))) {
                throw failure(found);
            }
            return found;
        } catch (ClosedByInterruptException error) {
            Thread.interrupted();
            throw new InterruptedException("interrupted while it waited for the agent");
        } catch (IOException | IllegalArgumentException error) {
            throw Unavailable.silent(agent, error, true);
        } finally {
            timer.cancel(false);
        }
    }

    private void readHead() throws IOException {
        String first = headLine();
        if (!first.startsWith("http/1.1 ") || first.length() < 12) {
            throw new IOException("the answer is not HTTP/1.1");
        }
        for (String field = headLine(); !field.isEmpty(); field = headLine()) {
            isChunked |= field.equals("transfer-encoding: chunked");
            if (field.startsWith("content-length: ")) {
                left = Integer.parseInt(field.substring(16));
            }
        }
        status = Integer.parseInt(first.substring(9, 12));
    }

    private int next() throws IOException {
        int found = input.read();
        if (found < 0 || --budget < 0) {
            throw new EOFException(found < 0 ? "it has ended the connection" : "too large");
        }
        return found;
    }

    private String headLine() throws IOException {
        var line = new StringBuilder();
        for (int c = next(); c != '\n'; c = next()) {
            line.append((char) c);
        }
        return line.toString().strip().toLowerCase(Locale.ROOT);
    }

    /** Returns the next line of the body that is not empty; an empty one at its end. */
    private String line() throws IOException {
        var line = new ByteArrayOutputStream();
        for (int c = 0; c != '\n' || line.size() == 0; ) {
            if (left == 0 && isChunked) {
                left = Integer.parseInt(headLine(), 16);
            }
            if (left <= 0) {
                break;
            }
            c = next();
            if (c != '\n') {
                line.write(c);
            }
            if (--left == 0 && isChunked) {
                headLine();
            }
        }
        return line.toString(StandardCharsets.UTF_8);
    }

    private static BatonException failure(Map<String, Object> answer) {
        String thing = Json.text(answer, "thing");
        String cause = Json.text(answer, "cause");
        String next = Json.text(answer, "next_step");
        // An agent does not remember what has ended: a guard that it does not know is a lost one.
        return switch (thing.startsWith("guard ") ? "lost" : Json.text(answer, "code")) {
            case "not_acquired" -> new NotAcquired(thing, cause, next);
            case "unavailable" -> new Unavailable(thing, cause, next);
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
