package io.github.batonlocks;

import io.github.batonlocks.BatonException.NotAcquired;
import io.github.batonlocks.BatonException.Refused;
import io.github.batonlocks.BatonException.Unavailable;
import io.github.batonlocks.BatonException.Unknown;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The agent that listens on a socket. Its methods may be called by any thread. */
public final class Agent {
    static final Link.Call HEALTH = new Link.Call("GET", "/v1/health", Map.of());

    final Lease.Clocks clocks;
    private final Path socket;

    /** The agent of this user, or else of the machine. */
    public Agent() {
        this(null);
    }

    /** The agent of a socket. */
    public Agent(Path socket) {
        this(socket, new Lease.Clocks());
    }

    Agent(Path socket, Lease.Clocks clocks) {
        this.socket = socket;
        this.clocks = clocks;
    }

    /** The path of the agent's socket. */
    public Path socket() {
        if (socket != null) {
            return socket;
        }
        String folder = System.getenv("XDG_RUNTIME_DIR");
        boolean isRoot = "root".equals(System.getProperty("user.name"));
        Path own = Path.of(folder == null ? "/" : folder, "baton", "agent.sock");
        return !isRoot && Files.exists(own) ? own : Path.of("/run/baton/agent.sock");
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
        return new Acquisition<>(this, path, route("member", path, ""),
                (agent, of, link, event) -> new Membership(agent, of, link)).with("id", id);
    }

    /** One of the members at a path. */
    public record Member(String id, String data, String session) {}

    /** Lists of the members at a path, one at each change. */
    public final class Members implements AutoCloseable {
        private final Link link;

        private Members(String path) {
            link = new Link(socket(), new Link.Call("GET", route("member", path, ""), Map.of()));
        }

        /** Waits for the next list. */
        public List<Member> next() throws InterruptedException {
            var found = new ArrayList<Member>();
            for (var it : list(link.receive(null), "members")) {
                found.add(new Member(Link.text(it, "id"), Link.text(it, "data"),
                        Link.text(it, "session")));
            }
            return found;
        }

        @Override
        public void close() {
            link.close();
        }
    }

    /** The members at a path. */
    public Members members(String path) {
        return new Members(path);
    }

    /** Work queue. */
    public final class Queue {
        private final String path;

        private Queue(String path) {
            this.path = path;
        }

        /** Puts an item, and returns its id. */
        public String put(byte[] data) {
            return put(data, new PutOptions());
        }

        /** Puts an item, and returns its id. */
        public String put(byte[] data, PutOptions options) {
            var fields = new HashMap<>(options.fields);
            fields.put("data_base64", base64(data));
            return Link.text(send("POST", route("queue", path, "/put"), fields), "item");
        }

        /** The next item. */
        public Acquisition<Item> take() {
            return new Acquisition<>(Agent.this, path, route("queue", path, "/take"), Item::new);
        }
    }

    /** Options of an item. */
    public static final class PutOptions {
        private final Map<String, Object> fields = new HashMap<>();

        /** Order of items: lower ones are taken first. */
        public PutOptions priority(int priority) {
            fields.put("priority", priority);
            return this;
        }

        /** Time before the item can be taken. */
        public PutOptions delay(Duration delay) {
            fields.put("delay_ms", milliseconds("delay", delay));
            return this;
        }

        /** Id: a second item with the same one is the first one. */
        public PutOptions id(String id) {
            fields.put("id", id);
            return this;
        }

        /** Number of times that the item is given to consumers before it is a dead letter. */
        public PutOptions maxAttempts(int attempts) {
            fields.put("max_attempts", attempts);
            return this;
        }
    }

    /** The work queue at a path. */
    public Queue queue(String path) {
        return new Queue(path);
    }

    /** Counter. */
    public final class Counter {
        private final String path;

        private Counter(String path) {
            this.path = path;
        }

        /** Adds, and returns the value. */
        public long add(long delta) {
            var fields = Map.<String, Object>of("delta", delta);
            return Link.number(send("POST", route("counter", path, "/add"), fields), "value");
        }

        /** Returns the value. */
        public long get() {
            return Link.number(send("GET", route("counter", path, ""), Map.of()), "value");
        }
    }

    /** The counter at a path. */
    public Counter counter(String path) {
        return new Counter(path);
    }

    /**
     * Holds an exclusive lock for a time, beyond the end of this process, and returns its token.
     *
     * @param wait the longest wait; null for as long as it takes
     * @param name the name that is shown to others; null for the program's
     */
    public long hold(String path, Duration ttl, Duration wait, String name) {
        var lock = new HashMap<String, Object>();
        lock.put("wait_ms", milliseconds("wait", wait));
        lock.put("name", name);
        Duration limit = wait == null ? null : wait.plus(Link.CALL_LIMIT);
        return hold(path, ttl, Map.of("lock", lock), limit);
    }

    /** Goes on holding a lock of {@link #hold} for a time from now, by its token. */
    public void holdOn(String path, Duration ttl, long token) {
        hold(path, ttl, Map.of("token", token), Link.CALL_LIMIT);
    }

    private long hold(String path, Duration ttl, Map<String, Object> options, Duration limit) {
        var fields = new HashMap<>(options);
        fields.put("ttl_ms", milliseconds("ttl", ttl));
        var call = new Link.Call("POST", route("hold", path, ""), fields);
        return Link.number(send(call, limit), "token");
    }

    /** Releases a lock of {@link #hold}, from any process of this user. */
    public void releaseHold(String path, long token) {
        send("DELETE", route("hold", path, "?token=" + token), Map.of());
    }

    /** Whether a token is that of the present holder. */
    public boolean tokenIsCurrent(String path, long token) {
        var answer = send("GET", route("token", path, "/" + token), Map.of());
        return Boolean.TRUE.equals(answer.get("current"));
    }

    /** The holders of a lock and those who wait for it, as the agent's JSON. */
    public Map<String, Object> locks(String path) {
        return send("GET", route("locks?path=", path, ""), Map.of());
    }

    /** State of the agent and of its sessions, as its JSON. */
    public Map<String, Object> health() {
        return send(HEALTH, Link.CALL_LIMIT);
    }

    private Map<String, Object> send(String method, String url, Map<String, Object> fields) {
        return send(new Link.Call(method, url, fields), Link.CALL_LIMIT);
    }

    private Map<String, Object> send(Link.Call call, Duration limit) {
        try {
            return ask(call, limit);
        } catch (BatonException error) {
            throw explain(call, error);
        }
    }

    /** Sends a request and returns its answer. An interrupt ends the wait for it. */
    Map<String, Object> ask(Link.Call call, Duration limit) {
        try (var link = new Link(socket(), call)) {
            return link.receive(limit);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw unanswered(call, Unavailable.silent(socket(), error.getMessage(), true));
        } catch (Unavailable error) {
            throw unanswered(call, error);
        }
    }

    private static BatonException unanswered(Link.Call call, Unavailable error) {
        if (!error.wasSent || call.method().equals("GET")) {
            return error;
        }
        String thing = call.method() + " " + call.url();
        return new Unknown(thing, error.reason(), "read before you repeat it");
    }

    /** Adds to an error who holds, or since when no server answers, where the agent knows. */
    BatonException explain(Link.Call call, BatonException error) {
        try {
            if (error instanceof Unavailable silent && silent.since == null) {
                if (ask(HEALTH, Link.CALL_LIMIT).get("unavailable_for_ms") instanceof Long time) {
                    silent.since = Instant.now().minusMillis(time);
                }
            } else if (error instanceof NotAcquired taken && !call.url().startsWith("/v1/queue")) {
                String url = "/v1/locks?path=/" + call.url().split("/", 4)[3];
                var state = ask(new Link.Call("GET", url, Map.of()), Link.CALL_LIMIT);
                for (var holder : list(state, "holders").subList(0, 1)) {
                    boolean hasName = holder.get("record") instanceof Map<?, ?> record
                            && record.get("name") instanceof String;
                    taken.heldBy = hasName ? (String) ((Map<?, ?>) holder.get("record")).get("name")
                            : Link.text(holder, "path");
                }
            }
        } catch (BatonException | IndexOutOfBoundsException unexplained) {
            // The error says what matters without it.
        }
        return error;
    }

    @SuppressWarnings("unchecked")
    static List<Map<String, Object>> list(Map<String, Object> answer, String field) {
        return answer.get(field) instanceof List<?> list ? (List<Map<String, Object>>) list
                : List.of();
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

    static String base64(byte[] data) {
        return data == null ? null : Base64.getEncoder().encodeToString(data);
    }
}
