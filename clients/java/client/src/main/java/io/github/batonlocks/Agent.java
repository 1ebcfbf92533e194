package io.github.batonlocks;

import io.github.batonlocks.BatonException.NotAcquired;
import io.github.batonlocks.BatonException.Refused;
import io.github.batonlocks.BatonException.Unavailable;
import io.github.batonlocks.BatonException.Unknown;
import java.io.IOException;
import java.lang.ProcessBuilder.Redirect;
import java.net.URLEncoder;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The agent that listens on a socket. Its methods may be called by any thread. */
public final class Agent {
    static final Link.Call HEALTH = new Link.Call("GET", "/v1/health");

    private static final Path MACHINE = Path.of("/run/baton/agent.sock");

    final Lease.Clocks clocks;
    private final Path socket;

    /** The agent of this user, or else of the machine. */
    public Agent() { this(null); }

    /** The agent of a socket. */
    public Agent(Path socket) { this(socket, new Lease.Clocks()); }

    Agent(Path socket, Lease.Clocks clocks) {
        this.socket = socket;
        this.clocks = clocks;
    }

    /**
     * The path of the agent's socket. Starts this user's agent, which ends when nobody uses it,
     * where neither that nor the machine's answers.
     */
    public Path socket() {
        if (socket != null) {
            return socket;
        }
        String folder = System.getenv("XDG_RUNTIME_DIR");
        boolean isRoot = "root".equals(System.getProperty("user.name"));
        Path own = isRoot || folder == null ? MACHINE : Path.of(folder, "baton", "agent.sock");
        if (!answers(own)) {
            if (answers(MACHINE)) {
                return MACHINE;
            }
            start();
        }
        return own;
    }

    /** Whether one listens there. A dead agent's is still there, and one may be another's. */
    private static boolean answers(Path socket) {
        try (var channel = SocketChannel.open(UnixDomainSocketAddress.of(socket))) {
            return channel.isConnected();
        } catch (ClosedByInterruptException error) {
            return true; // The request says that it was interrupted.
        } catch (IOException | RuntimeException error) {
            return false;
        }
    }

    private static void start() {
        try {
            new ProcessBuilder("baton", "agent", "--background").redirectOutput(Redirect.DISCARD)
                    .redirectError(Redirect.DISCARD).start().waitFor();
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        } catch (IOException error) {
            // The error of the request names the socket.
        }
    }

    /** A lock: exclusive, unless it is shared by readers or slots. */
    public Acquisition<Guard> lock(String path) {
        return new Acquisition<>(this, path, route("lock", path, ""), Guard::new);
    }

    /** Leadership. Those who watch the election see its data. */
    public Acquisition<Guard> elect(String path) {
        return new Acquisition<>(this, path, route("elect", path, ""), Guard::new);
    }

    /** Membership, by an id. */
    public Acquisition<Membership> join(String path, String id) {
        String url = route("member", path, "");
        return new Acquisition<>(this, path, url, Membership::new).with("id", id);
    }

    /** One of the members at a path. */
    public record Member(String id, String data, String session) {}

    /** Lists of the members at a path, one at each change. */
    public static final class Members implements AutoCloseable {
        private final Link link;

        private Members(Link link) { this.link = link; }

        /** Waits for the next list. */
        public List<Member> next() throws InterruptedException {
            return Json.list(link.receive(Link.NO_LIMIT), "members").stream().map(it -> new Member(
                    Json.text(it, "id"), Json.text(it, "data"), Json.text(it, "session"))).toList();
        }

        @Override
        public void close() { link.close(); }
    }

    /** The members at a path. */
    public Members members(String path) {
        return new Members(new Link(socket(), new Link.Call("GET", route("member", path, ""))));
    }

    /** Work queue. */
    public final class Queue {
        private final String path;

        private Queue(String path) { this.path = path; }

        /** Puts an item, and returns its id. */
        public String put(byte[] data) { return put(data, new PutOptions()); }

        /** Puts an item, and returns its id. */
        public String put(byte[] data, PutOptions options) {
            var fields = Json.object("data_base64", Json.base64(data));
            fields.putAll(options.fields);
            String url = route("queue", path, "/put");
            return Json.text(send(new Link.Call("POST", url, Link.CALL_LIMIT, fields)), "item");
        }

        /** The next item. */
        public Acquisition<Item> take() {
            return new Acquisition<>(Agent.this, path, route("queue", path, "/take"), Item::new);
        }
    }

    /** Options of an item. */
    public static final class PutOptions {
        private final Map<String, Object> fields = new LinkedHashMap<>();

        private PutOptions with(String field, Object value) {
            fields.put(field, value);
            return this;
        }

        /** Order of items: lower ones are taken first. */
        public PutOptions priority(int priority) { return with("priority", priority); }

        /** Time before the item can be taken. */
        public PutOptions delay(Duration delay) {
            return with("delay_ms", milliseconds("delay_ms", delay));
        }

        /** Id: a second item with the same one is the first one. */
        public PutOptions id(String id) { return with("id", id); }

        /** Number of times that the item is given to consumers before it is a dead letter. */
        public PutOptions maxAttempts(int attempts) { return with("max_attempts", attempts); }
    }

    /** The work queue at a path. */
    public Queue queue(String path) { return new Queue(path); }

    /** Counter. */
    public final class Counter {
        private final String path;

        private Counter(String path) { this.path = path; }

        /** Adds, and returns the value. */
        public long add(long delta) {
            String url = route("counter", path, "/add");
            return Json.number(send("POST", url, "delta", delta), "value");
        }

        /** Returns the value. */
        public long get() { return Json.number(send("GET", route("counter", path, "")), "value"); }
    }

    /** The counter at a path. */
    public Counter counter(String path) { return new Counter(path); }

    /**
     * Holds an exclusive lock for a time, beyond the end of this process, and returns its token.
     *
     * @param wait the longest wait; null for as long as it takes
     * @param name the name that is shown to others; null for the program's
     */
    public long hold(String path, Duration ttl, Duration wait, String name) {
        var lock = Json.object("wait_ms", milliseconds("wait_ms", wait), "name", name);
        return hold(path, ttl, Link.limit(wait), "lock", lock);
    }

    /** Goes on holding a lock of {@link #hold} for a time from now, by its token. */
    public void holdOn(String path, Duration ttl, long token) {
        hold(path, ttl, Link.CALL_LIMIT, "token", token);
    }

    private long hold(String path, Duration ttl, Duration limit, String field, Object value) {
        var fields = Json.object("ttl_ms", milliseconds("ttl_ms", ttl), field, value);
        var call = new Link.Call("POST", route("hold", path, ""), limit, fields);
        return Json.number(send(call), "token");
    }

    /** Releases a lock of {@link #hold}, from any process of this user. */
    public void releaseHold(String path, long token) {
        send("DELETE", route("hold", path, "?token=" + token));
    }

    /** Whether a token is that of the present holder. */
    public boolean tokenIsCurrent(String path, long token) {
        var answer = send("GET", route("token", path, "/" + token));
        return Boolean.TRUE.equals(answer.get("current"));
    }

    /** The holders of a lock and those who wait for it, as the agent's JSON. */
    public Map<String, Object> locks(String path) {
        return send("GET", route("locks?path=", path, ""));
    }

    /** State of the agent and of its sessions, as its JSON. */
    public Map<String, Object> health() { return send(HEALTH); }

    private Map<String, Object> send(String method, String url, Object... fields) {
        return send(new Link.Call(method, url, fields));
    }

    private Map<String, Object> send(Link.Call call) {
        try {
            return ask(call);
        } catch (BatonException error) {
            throw explain(call, error);
        }
    }

    /** Sends a request and returns its answer. An interrupt ends the wait for it. */
    Map<String, Object> ask(Link.Call call) {
        Unavailable silent;
        Path agent = socket();
        try (var link = new Link(agent, call)) {
            return link.receive(call.limit());
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            silent = Unavailable.silent(agent, error.getMessage(), true);
        } catch (Unavailable error) {
            silent = error;
        }
        if (!silent.wasSent || call.method().equals("GET")) {
            throw silent;
        }
        String thing = call.method() + " " + call.url();
        throw new Unknown(thing, silent.reason(), "read before you repeat it");
    }

    /** Adds to an error who holds, or since when no server answers, where the agent knows. */
    BatonException explain(Link.Call call, BatonException error) {
        try {
            if (error instanceof Unavailable silent && silent.since == null) {
                if (ask(HEALTH).get("unavailable_for_ms") instanceof Long time) {
                    silent.since = Instant.now().minusMillis(time);
                }
            } else if (error instanceof NotAcquired taken && !call.url().startsWith("/v1/queue")) {
                String url = "/v1/locks?path=/" + call.url().split("/", 4)[3];
                var holder = Json.list(ask(new Link.Call("GET", url)), "holders").get(0);
                taken.heldBy = holder.get("record") instanceof Map<?, ?> record
                        && record.get("name") instanceof String name ? name
                        : Json.text(holder, "path");
            }
        } catch (BatonException | IndexOutOfBoundsException unexplained) {
            // The error says what matters without it.
        }
        return error;
    }

    /** Returns the URL of a znode path. */
    static String route(String kind, String path, String rest) {
        if (path == null || !path.startsWith("/") || path.equals("/")) {
            throw new Refused("\"" + path + "\"", "not a znode path", "give one like /deploy");
        }
        String encoded = URLEncoder.encode(path, StandardCharsets.UTF_8);
        return "/v1/" + kind + encoded.replace("+", "%20").replace("%2F", "/") + rest;
    }

    /** Returns a time in whole milliseconds, 0 only for 0. */
    static Long milliseconds(String name, Duration time) {
        if (time == null) {
            return null;
        } else if (time.isNegative() || time.compareTo(Duration.ofDays(36500)) > 0) {
            throw new Refused(name, time + " is no time from 0 to 100 years", "give another");
        }
        return time.plusNanos(999_999).toMillis();
    }
}
