package io.github.batonlocks;

import io.github.batonlocks.BatonException.Refused;
import io.github.batonlocks.BatonException.Unavailable;
import io.github.batonlocks.BatonException.Unknown;
import java.io.IOException;
import java.lang.ProcessBuilder.Redirect;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

/** The agent that listens on a socket. Its methods may be called by any thread. */
public final class Agent {
    static final Link.Call HEALTH = new Link.Call("GET", "/v1/health");

    private static final Path MACHINE = Path.of("/run/baton/agent.sock");

    final Lease.Clocks clocks;
    final Path socket;

    /** The agent of this user, or else of the machine. */
    public Agent() { this(null); }

    /** The agent of a socket. */
    public Agent(Path socket) { this(socket, new Lease.Clocks()); }

    Agent(Path socket, Lease.Clocks clocks) {
        this.socket = socket;
        this.clocks = clocks;
    }

    /**
     * Sends a request to the agent that listens. Starts this user's, which ends when nobody uses
     * it, where neither that nor the machine's does.
     */
    Link open(Link.Call call) {
        if (socket != null) {
            return Link.open(socket, call);
        }
        String folder = System.getenv("XDG_RUNTIME_DIR");
        boolean isRoot = "root".equals(System.getProperty("user.name"));
        Path own = isRoot || folder == null ? MACHINE : Path.of(folder, "baton", "agent.sock");
        for (Path agent : List.of(own, MACHINE)) {
            try {
                return Link.open(agent, call);
            } catch (Unavailable error) {
                // A dead agent's socket is still there, and one may be another's.
            }
        }
        try {
            new ProcessBuilder("baton", "agent", "--background").redirectOutput(Redirect.DISCARD)
                    .redirectError(Redirect.DISCARD).start().onExit().join();
        } catch (IOException error) {
            // The error of the request names the socket.
        }
        return Link.open(own, call);
    }

    /** A lock: exclusive, unless it is shared by readers or slots. */
    public Acquisition<Guard> lock(String path) { return holding("lock", path, Guard::new); }

    /** Leadership. Those who watch the election see its data. */
    public Acquisition<Guard> elect(String path) { return holding("elect", path, Guard::new); }

    /** Membership, by an id. */
    public Acquisition<Membership> join(String path, String id) {
        return holding("member", path, Membership::new).with("id", id);
    }

    private <T extends Held> Acquisition<T> holding(String kind, String path,
            Function<Held.Grant, T> type) {
        return new Acquisition<>(this, path, new Link.Call("PUT", route(kind, path, "")), type);
    }

    /** One of the members at a path. */
    public record Member(String id, String data, String session) {}

    /** Lists of the members at a path, one at each change. */
    public static final class Members implements AutoCloseable {
        private final Link link;

        private Members(Link link) { this.link = link; }

        /** Waits for the next list. */
        public List<Member> next() throws InterruptedException {
            try {
                var members = Json.list(link.receive(Link.NO_LIMIT), "members").stream();
                return members.map(it -> new Member(Json.text(it, "id"), Json.text(it, "data"),
                        Json.text(it, "session"))).toList();
            } catch (Unavailable error) {
                Link.throwIfInterrupted();
                throw error;
            }
        }

        @Override
        public void close() { link.close(); }
    }

    /** The members at a path. */
    public Members members(String path) {
        return new Members(open(new Link.Call("GET", route("member", path, ""))));
    }

    /** Work queue. */
    public record Queue(Agent agent, String path) {
        /** Puts an item, and returns its id. */
        public String put(byte[] data) { return put(data, new PutOptions()); }

        /** Puts an item, and returns its id. */
        public String put(byte[] data, PutOptions options) {
            var fields = Json.object("data_base64", data);
            fields.putAll(options.fields);
            String url = route("queue", path, "/put");
            var call = new Link.Call("POST", url, Link.CALL_LIMIT, fields);
            return Json.text(agent.ask(call), "item");
        }

        /** The next item. */
        public Acquisition<Item> take() {
            var call = new Link.Call("POST", route("queue", path, "/take"));
            return new Acquisition<>(agent, path, call, Item::new);
        }
    }

    /** Options of an item. */
    public static final class PutOptions {
        private final Map<String, Object> fields = new LinkedHashMap<>();

        private PutOptions with(String field, Object value) {
            Json.put(fields, field, value);
            return this;
        }

        /** Order of items: lower ones are taken first. */
        public PutOptions priority(int priority) { return with("priority", priority); }

        /** Time before the item can be taken. */
        public PutOptions delay(Duration delay) { return with("delay_ms", delay); }

        /** Id: a second item with the same one is the first one. */
        public PutOptions id(String id) { return with("id", id); }

        /** Number of times that the item is given to consumers before it is a dead letter. */
        public PutOptions maxAttempts(int attempts) { return with("max_attempts", attempts); }
    }

    /** The work queue at a path. */
    public Queue queue(String path) { return new Queue(this, path); }

    /** Counter. */
    public record Counter(Agent agent, String path) {
        /** Adds, and returns the value. */
        public long add(long delta) {
            String url = route("counter", path, "/add");
            return Json.number(agent.ask("POST", url, "delta", delta), "value");
        }

        /** Returns the value. */
        public long get() {
            return Json.number(agent.ask("GET", route("counter", path, "")), "value");
        }
    }

    /** The counter at a path. */
    public Counter counter(String path) { return new Counter(this, path); }

    /**
     * Holds an exclusive lock for a time, beyond the end of this process, and returns its token.
     *
     * @param wait the longest wait; null for as long as it takes
     * @param name the name that is shown to others; null for the program's
     */
    public long hold(String path, Duration ttl, Duration wait, String name) {
        var lock = Json.object("wait_ms", wait, "name", name);
        var call = new Link.Call("POST", route("hold", path, ""), Link.limit(wait),
                Json.object("ttl_ms", ttl, "lock", lock));
        return Json.number(ask(call), "token");
    }

    /** Goes on holding a lock of {@link #hold} for a time from now, by its token. */
    public void holdOn(String path, Duration ttl, long token) {
        ask("POST", route("hold", path, ""), "ttl_ms", ttl, "token", token);
    }

    /** Releases a lock of {@link #hold}, from any process of this user. */
    public void releaseHold(String path, long token) {
        ask("DELETE", route("hold", path, "?token=" + token));
    }

    /** Whether a token is that of the present holder. */
    public boolean tokenIsCurrent(String path, long token) {
        return Boolean.TRUE.equals(ask("GET", route("token", path, "/" + token)).get("current"));
    }

    /** The holders of a lock and those who wait for it, as the agent's JSON. */
    public Map<String, Object> locks(String path) {
        return ask("GET", route("locks?path=", path, ""));
    }

    /** State of the agent and of its sessions, as its JSON. */
    public Map<String, Object> health() { return ask(HEALTH); }

    private Map<String, Object> ask(String method, String url, Object... fields) {
        return ask(new Link.Call(method, url, fields));
    }

    /** Sends a request and returns its answer. An interrupt ends the wait for it. */
    Map<String, Object> ask(Link.Call call) {
        Link link = open(call);
        try {
            return link.receive(call.limit());
        } catch (Unavailable error) {
            boolean isChange = error.isSilence && !call.method().equals("GET");
            throw isChange ? new Unknown(call.method() + " " + call.url(), error) : error;
        } finally {
            link.giveBack();
        }
    }

    /** Returns the URL of a znode path. */
    static String route(String kind, String path, String rest) {
        if (path == null || !path.startsWith("/") || path.equals("/")) {
            throw new Refused("\"" + path + "\"", "not a znode path", "give one like /deploy");
        }
        String encoded = URLEncoder.encode(path, StandardCharsets.UTF_8);
        return "/v1/" + kind + encoded.replace("+", "%20").replace("%2F", "/") + rest;
    }
}
