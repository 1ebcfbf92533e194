package io.github.batonlocks;

import io.github.batonlocks.BatonException.Lost;
import io.github.batonlocks.BatonException.NotAcquired;
import io.github.batonlocks.BatonException.Refused;
import io.github.batonlocks.BatonException.Unavailable;
import io.github.batonlocks.BatonException.Unknown;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Map;
import java.util.concurrent.BlockingDeque;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingDeque;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;

/**
 * Connection with one request at a time, which is kept for the next one. A thread that is
 * interrupted while it waits closes it.
 */
final class Link {
    /** Longest wait for an answer, beyond what the caller wants to wait. */
    static final Duration CALL_LIMIT = Duration.ofMinutes(1);
    static final Duration NO_LIMIT = ChronoUnit.FOREVER.getDuration();
    private static final int MAX_MESSAGE = 16 << 20;
    /** Idle connections to one agent. */
    private static final int MAX_IDLE = 8;
    /** Longest idle time of a connection that is used again; the agent closes it later. */
    private static final long MAX_IDLE_NANOS = 20_000_000_000L;
    private static final Pattern HEAD = Pattern.compile("(?i)HTTP/1\\.\\d (\\d{3})[^\n]*\n"
            + "(?:content-length: *(\\d{1,9})\\s*\n|transfer-encoding: *(chunked)\\s*\n"
            + "|connection: *(close)\\s*\n|[^:\n]+:[^\n]*\n)*\r\n");
    private static final Map<Path, BlockingDeque<Link>> IDLE = new ConcurrentHashMap<>();

    /**
     * A request, and the longest wait for an object of its answer. The body of a PUT stays open,
     * and the agent holds what it asks for until its end.
     */
    record Call(String method, String url, Duration limit, Map<String, Object> fields) {
        Call(String method, String url, Object... fields) {
            this(method, url, CALL_LIMIT, Json.object(fields));
        }
    }

    final Path agent;
    private final SocketChannel channel;
    private final ByteBuffer input = ByteBuffer.allocate(1024);
    private final ByteArrayOutputStream head = new ByteArrayOutputStream();
    private final ByteArrayOutputStream line = new ByteArrayOutputStream();
    /** Whether the body of the request has not ended. */
    private boolean isOpen;
    private int status;
    private boolean isChunked;
    private boolean isOver;
    private boolean isKept;
    /** Bytes that are left of the body or of a chunk; -1 behind the last chunk. */
    private long left;
    /** When the present wait or idle time began, and how long the wait may be. */
    private volatile long since;
    private volatile long longest;

    private Link(Path agent) throws IOException {
        this.agent = agent;
        channel = SocketChannel.open(UnixDomainSocketAddress.of(agent));
    }

    /** Sends a request. Throws an error only where nobody listens. */
    static Link open(Path agent, Call call) {
        var links = IDLE.computeIfAbsent(agent, it -> new LinkedBlockingDeque<>(MAX_IDLE));
        try {
            Link link = links.pollFirst();
            for (; link != null && !link.isUsable(); link = links.pollFirst()) {
                link.close();
            }
            link = link == null ? new Link(agent) : link;
            link.send(call);
            return link;
        } catch (IOException | RuntimeException error) {
            throw Unavailable.silent(agent, error, false);
        }
    }

    /** Whether the agent has neither closed an idle connection nor sent what nobody asked for. */
    private boolean isUsable() throws IOException {
        channel.configureBlocking(false);
        boolean isQuiet = channel.read(input.clear()) == 0;
        channel.configureBlocking(true);
        return isQuiet && System.nanoTime() - since < MAX_IDLE_NANOS;
    }

    private void send(Call call) {
        String text = Json.write(call.fields());
        isOpen = call.method().equals("PUT");
        input.clear().flip();
        head.reset();
        status = 0;
        left = 0;
        isOver = false;
        write(call.method() + " " + call.url() + " HTTP/1.1\r\nHost: baton\r\n" + (isOpen
                ? "Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\n\r\n".formatted(text.length() + 1, text)
                : "Content-Length: " + text.length() + "\r\n\r\n" + text));
    }

    private void write(String text) {
        try {
            for (var data = StandardCharsets.US_ASCII.encode(text); data.hasRemaining();) {
                channel.write(data);
            }
        } catch (IOException error) {
            // No end: the agent may have answered before it has read all.
        }
    }

    /** Ends the body of the request, and so what it holds. */
    void end() {
        isOpen = false;
        write("0\r\n\r\n");
    }

    /** Returns the longest wait for what may wait so long itself; null for as long as it takes. */
    static Duration limit(Duration wait) { return wait == null ? NO_LIMIT : wait.plus(CALL_LIMIT); }

    /**
     * Waits for an object; does not wait, and returns null, where the watcher has the connection.
     * Throws the error that the agent names, or that it is silent: also to a thread that is
     * interrupted, which keeps its flag.
     */
    Map<String, Object> receive(Duration limit) {
        try {
            var found = next(limit);
            if (status >= 400 && isOver) {
                throw failure(found == null ? Json.object("thing", "HTTP status " + status) : found);
            } else if (found != null && "error".equals(found.get("event"))) {
                throw failure(found);
            }
            need(found != null || !isOver, "has no end");
            return found;
        } catch (IOException | IllegalArgumentException error) {
            close();
            throw Unavailable.silent(agent, isLate() ? "it took too long" : error, true);
        }
    }

    /** Whether a thread waits for longer than it is to. */
    boolean isLate() { return System.nanoTime() - since > longest; }

    /** Returns the next object; null at the end of the answer, or where none has come yet. */
    private Map<String, Object> next(Duration limit) throws IOException {
        since = System.nanoTime();
        longest = TimeUnit.NANOSECONDS.convert(limit);
        Watcher.WAITING.add(this);
        try {
            while (!isOver && (input.hasRemaining() || hasRead())) {
                byte next = input.get();
                boolean isBody = left > 0;
                var text = isBody ? line : head;
                need(text.size() < MAX_MESSAGE, "is too large");
                text.write(next);
                left -= isBody ? 1 : 0;
                // The last line of a body may have no end.
                isOver = isBody && left == 0 && !isChunked;
                if (next == '\n' && !isBody) {
                    readHead(head.toString(StandardCharsets.US_ASCII));
                } else if (next == '\n' || isOver) {
                    String object = line.toString(StandardCharsets.UTF_8);
                    line.reset();
                    return Json.read(object);
                }
            }
            return null;
        } finally {
            Watcher.WAITING.remove(this);
        }
    }

    private boolean hasRead() throws IOException {
        int count = channel.read(input.clear());
        input.flip();
        need(count >= 0, "has ended too early");
        return count > 0;
    }

    /** Reads what is not of the body, up to the end of a line: the head, the size of a chunk. */
    private void readHead(String text) throws IOException {
        if (status == 0 && !text.endsWith("\n\r\n")) {
            return;
        } else if (status == 0) {
            var found = HEAD.matcher(text);
            need(found.matches() && (found.group(2) != null || found.group(3) != null), "is not HTTP");
            status = Integer.parseInt(found.group(1));
            isKept = found.group(4) == null;
            isChunked = found.group(3) != null;
            left = isChunked ? 0 : Long.parseLong(found.group(2));
            isOver = !isChunked && left == 0;
        } else if (left < 0) {
            isOver = text.isBlank();
        } else if (!text.isBlank()) {
            int size = Integer.parseInt("0" + text.strip(), 16);
            left = size > 0 ? size : -1;
        }
        head.reset();
    }

    private static void need(boolean isRight, String otherwise) throws IOException {
        if (!isRight) {
            throw new IOException("the answer " + otherwise);
        }
    }

    /** Gives the connection to the watcher, which reads the events of what is held. */
    void watch(Held held) {
        try {
            channel.configureBlocking(false);
            channel.register(Watcher.SELECTOR, SelectionKey.OP_READ, held);
        } catch (IOException error) {
            close();
        }
    }

    /** Takes the connection back from the watcher, if it has it. */
    void unwatch() throws IOException {
        if (isWatched()) {
            channel.keyFor(Watcher.SELECTOR).cancel();
            channel.configureBlocking(true);
        }
    }

    boolean isWatched() { return !channel.isBlocking(); }

    /** Keeps the connection for another request, where it can have one after this answer. */
    void giveBack() {
        if (isOpen && isOver && status >= 400) {
            // The agent reads the rest of a request that it has refused.
            end();
        }
        try {
            if (channel.isOpen() && isKept && !isOpen && next(CALL_LIMIT) == null && isOver
                    && !input.hasRemaining()) {
                since = System.nanoTime();
                if (IDLE.get(agent).offerFirst(this)) {
                    return;
                }
            }
        } catch (IOException | IllegalArgumentException error) {
            // It can have none.
        }
        close();
    }

    void close() {
        try {
            channel.close();
        } catch (IOException error) {
            // It is closed all the same.
        }
        if (channel.isRegistered()) {
            // Until the selector notices it, the agent does not.
            Watcher.SELECTOR.wakeup();
        }
    }

    /** Throws that this thread was interrupted, where it was. */
    static void throwIfInterrupted() throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException("interrupted while it waited for the agent");
        }
    }

    private BatonException failure(Map<String, Object> answer) {
        if (status == 405) {
            // An agent of the version before has no such requests.
            return new Refused("the agent", "it is older than this client", "restart it");
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
}
