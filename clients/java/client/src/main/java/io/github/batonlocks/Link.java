package io.github.batonlocks;

import io.github.batonlocks.BatonException.Unavailable;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.Map;
import java.util.concurrent.BlockingDeque;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingDeque;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;

/**
 * Connection with one request. The connection itself is kept for the next one. A thread that is
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
    private static final Duration IDLE_LIMIT = Duration.ofSeconds(20);
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
    private final ByteBuffer input = ByteBuffer.allocate(1024).flip();
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
    /** End of the present wait or idle time. */
    private volatile long deadline;

    /** Sends a request. */
    private Link(Path agent, SocketChannel channel, Call call) {
        this.agent = agent;
        this.channel = channel;
        isOpen = call.method().equals("PUT");
        String body = Json.write(call.fields()) + "\n";
        String chunk = Integer.toHexString(body.length()) + "\r\n" + body + "\r\n";
        write(call.method() + " " + call.url() + " HTTP/1.1\r\nHost: baton\r\n"
                + (isOpen ? "Transfer-Encoding: chunked\r\n\r\n" + chunk
                        : "Content-Length: " + body.length() + "\r\n\r\n" + body));
    }

    /** Sends a request. Throws an error only where nobody listens. */
    static Link open(Path agent, Call call) {
        var links = IDLE.computeIfAbsent(agent, it -> new LinkedBlockingDeque<>(MAX_IDLE));
        try {
            Link idle = links.pollFirst();
            for (; idle != null && !idle.isUsable(); idle = links.pollFirst()) {
                idle.close();
            }
            var address = UnixDomainSocketAddress.of(agent);
            return new Link(agent, idle == null ? SocketChannel.open(address) : idle.channel, call);
        } catch (IOException | RuntimeException error) {
            throw new Unavailable(agent, error);
        }
    }

    /** Whether the agent has neither closed an idle connection nor sent what nobody asked for. */
    private boolean isUsable() throws IOException {
        channel.configureBlocking(false);
        return channel.read(input.clear()) == 0 && !isLate();
    }

    /** Takes the connection back from the watcher, if it has it, and writes. */
    private void write(String text) {
        try {
            SelectionKey key = channel.keyFor(Watcher.SELECTOR);
            if (key != null) {
                key.cancel();
            }
            channel.configureBlocking(true);
            for (var data = StandardCharsets.US_ASCII.encode(text); data.hasRemaining();) {
                channel.write(data);
            }
        } catch (IOException error) {
            // No end: the agent may have answered before it has read all.
        }
    }

    /** Ends the body of the request, and so what it holds. */
    synchronized void end() {
        isOpen = false;
        write("0\r\n\r\n");
    }

    /** Returns the longest wait for what may wait so long itself; null for as long as it takes. */
    static Duration limit(Duration wait) { return wait == null ? NO_LIMIT : wait.plus(CALL_LIMIT); }

    private void setDeadline(Duration limit) {
        long time = Math.min(TimeUnit.NANOSECONDS.convert(limit), Long.MAX_VALUE / 2);
        deadline = System.nanoTime() + time;
    }

    /** Whether a thread waits for longer than it is to. */
    boolean isLate() { return System.nanoTime() - deadline > 0; }

    /**
     * Waits for an object; does not wait, and returns null, where the watcher has the connection.
     * Throws the error that the agent names, or that it is silent: also to a thread that is
     * interrupted, which keeps its flag.
     */
    Map<String, Object> receive(Duration limit) {
        try {
            var found = next(limit);
            if (status >= 400 && isOver || found != null && "error".equals(found.get("event"))) {
                throw BatonException.of(status, found);
            }
            Json.need(found != null || !isOver, "has no end");
            return found;
        } catch (IOException | IllegalArgumentException error) {
            close();
            throw new Unavailable(agent, isLate() ? "it took too long" : error);
        }
    }

    /** Returns the next object; null at the end of the answer, or where none has come yet. */
    private Map<String, Object> next(Duration limit) throws IOException {
        setDeadline(limit);
        Watcher.WAITING.add(this);
        try {
            while (!isOver && (input.hasRemaining() || hasRead())) {
                byte next = input.get();
                if (left <= 0) {
                    readHead(next);
                    continue;
                }
                line.write(next);
                left--;
                // The last line of a body may have no end.
                isOver = left == 0 && !isChunked;
                if (next == '\n' || isOver) {
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
        Json.need(count >= 0, "has ended too early");
        Json.need(head.size() + line.size() < MAX_MESSAGE, "is too large");
        return count > 0;
    }

    /** Reads what is not of the body: the head, or the line with the size of a chunk. */
    private void readHead(byte next) {
        head.write(next);
        if (next != '\n') {
            return;
        }
        String text = head.toString(StandardCharsets.US_ASCII);
        if (status == 0 && !text.endsWith("\n\r\n")) {
            return;
        } else if (status == 0) {
            var found = HEAD.matcher(text);
            Json.need(found.matches(), "is not HTTP");
            status = Integer.parseInt(found.group(1));
            isKept = found.group(4) == null;
            isChunked = found.group(3) != null;
            Json.need(isChunked || found.group(2) != null, "has no length");
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

    /** Gives the connection to the watcher, which reads the events of what is held. */
    void watch(Held held) throws IOException {
        if (!isWatched()) {
            channel.configureBlocking(false);
            channel.register(Watcher.SELECTOR, SelectionKey.OP_READ, held);
        }
    }

    /** Whether the watcher has the connection: {@link #receive} does not wait there. */
    boolean isWatched() { return !channel.isBlocking(); }

    /** Keeps the connection for another request, where it can have one after this answer. */
    void giveBack() {
        if (isOpen && isOver && status >= 400) {
            // The agent reads the rest of a request that it has refused.
            end();
        }
        try {
            if (channel.isOpen() && !isWatched() && isKept && !isOpen
                    && next(CALL_LIMIT) == null && isOver && !input.hasRemaining()) {
                setDeadline(IDLE_LIMIT);
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
}
