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
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/** Connection with one request. A thread that is interrupted while it waits closes it. */
final class Link implements AutoCloseable {
    /** Longest wait for an answer, beyond what the caller wants to wait. */
    static final Duration CALL_LIMIT = Duration.ofMinutes(1);
    static final ScheduledThreadPoolExecutor TIMER = new ScheduledThreadPoolExecutor(1, task -> {
        var thread = new Thread(task, "baton-timer");
        thread.setDaemon(true);
        return thread;
    });
    private static final int MAX_MESSAGE = 16 << 20;

    static {
        TIMER.setRemoveOnCancelPolicy(true);
    }

    /** A request. */
    record Call(String method, String url, Map<String, Object> fields) {}

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
        byte[] body = Json.write(call.fields()).getBytes(StandardCharsets.UTF_8);
        String head = call.method() + " " + call.url() + " HTTP/1.1\r\nHost: localhost\r\n"
                + "Content-Length: " + body.length + "\r\n\r\n";
        byte[] first = head.getBytes(StandardCharsets.UTF_8);
        var data = ByteBuffer.allocate(first.length + body.length).put(first).put(body).flip();
        try {
            while (data.hasRemaining()) {
                channel.write(data);
            }
        } catch (IOException error) {
            // No end: the agent may have answered before it has read all.
        }
    }

    /** Waits for an object. Throws the error that the agent names, or that it is silent. */
    Map<String, Object> receive(Duration limit) throws InterruptedException {
        var timer = limit == null ? null
                : TIMER.schedule(this::close, limit.toNanos(), TimeUnit.NANOSECONDS);
        try {
            budget = MAX_MESSAGE;
            if (status == 0) {
                readHead();
            }
            String line = line();
            boolean isEmpty = line.isBlank();
            if (isEmpty && status < 400) {
                throw new EOFException("it has ended the connection");
            }
            var found = isEmpty ? Map.<String, Object>of("thing", "HTTP status " + status)
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
            if (timer != null) {
                timer.cancel(false);
            }
        }
    }

    private void readHead() throws IOException {
        String first = headLine();
        if (!first.startsWith("http/1.1 ") || first.length() < 12) {
            throw new IOException("the answer is not HTTP/1.1");
        }
        for (String field = headLine(); !field.isEmpty(); field = headLine()) {
            String[] parts = field.split(": ", 2);
            isChunked |= parts[0].equals("transfer-encoding") && parts[1].equals("chunked");
            left = parts[0].equals("content-length") ? Integer.parseInt(parts[1]) : left;
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
        while (true) {
            if (left == 0 && isChunked) {
                left = Integer.parseInt(headLine(), 16);
            }
            if (left <= 0) {
                return line.toString(StandardCharsets.UTF_8);
            }
            int c = next();
            left--;
            if (left == 0 && isChunked) {
                headLine();
            }
            if (c != '\n') {
                line.write(c);
            } else if (line.size() > 0) {
                return line.toString(StandardCharsets.UTF_8);
            }
        }
    }

    private static BatonException failure(Map<String, Object> answer) {
        String thing = text(answer, "thing");
        String cause = text(answer, "cause");
        String next = text(answer, "next_step");
        // An agent does not remember what has ended: a guard that it does not know is a lost one.
        return switch (thing.startsWith("guard ") ? "lost" : text(answer, "code")) {
            case "not_acquired" -> new NotAcquired(thing, cause, next);
            case "unavailable" -> new Unavailable(thing, cause, next);
            case "lost" -> new Lost(thing, cause, next);
            case "unknown" -> new Unknown(thing, cause, next);
            default -> new Refused(thing, cause, next);
        };
    }

    static String text(Map<String, Object> answer, String field) {
        return answer.get(field) instanceof String text ? text : "";
    }

    static long number(Map<String, Object> answer, String field) {
        return answer.get(field) instanceof Number number ? number.longValue() : 0;
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
