package io.github.batonlocks;

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.function.Consumer;

/**
 * Request for something to hold. The agent refuses an option that the request does not have.
 *
 * @param <T> what is held
 */
public final class Acquisition<T extends Held> {
    interface Factory<T> {
        T of(Agent agent, String path, Link link, Map<String, Object> event);
    }

    /**
     * Position in a wait queue.
     *
     * @param place number of holders and waiters before the caller
     * @param heldBy the holder's node
     */
    public record Position(long place, String heldBy) {}

    private final Agent agent;
    private final String path;
    private final String url;
    private final Factory<T> factory;
    private final Map<String, Object> fields = new HashMap<>();
    private Consumer<Position> onWait = position -> { };

    Acquisition(Agent agent, String path, String url, Factory<T> factory) {
        this.agent = agent;
        this.path = path;
        this.url = url;
        this.factory = factory;
    }

    Acquisition<T> with(String name, Object value) {
        fields.put(name, value);
        return this;
    }

    /** Shares a lock among readers. */
    public Acquisition<T> read() {
        return with("mode", "read");
    }

    /** Takes a lock that readers share for itself. */
    public Acquisition<T> write() {
        return with("mode", "write");
    }

    /** Lets a lock have several holders. */
    public Acquisition<T> slots(int slots) {
        fields.putIfAbsent("mode", "slot");
        return with("slots", slots);
    }

    /** Name that is shown to others; otherwise it is the program's. */
    public Acquisition<T> name(String name) {
        return with("name", name);
    }

    /** Time after which the servers give up a session without messages. */
    public Acquisition<T> sessionTimeout(Duration timeout) {
        return with("session_timeout_ms", Agent.milliseconds("sessionTimeout", timeout));
    }

    /** Time for which nobody gets an exclusive lock after its holder has died. */
    public Acquisition<T> lockDelay(Duration delay) {
        return with("lock_delay_ms", Agent.milliseconds("lockDelay", delay));
    }

    /** Time for which the claim of an item lasts without {@link Item#extend}. */
    public Acquisition<T> visibility(Duration visibility) {
        return with("visibility_ms", Agent.milliseconds("visibility", visibility));
    }

    /** Data that is shown to those who watch an election or members. */
    public Acquisition<T> data(byte[] data) {
        return with("data_base64", Agent.base64(data));
    }

    /** Function that receives each change of the position in the wait queue. */
    public Acquisition<T> onWait(Consumer<Position> function) {
        onWait = function;
        return this;
    }

    /** Acquires, and waits as long as it takes. An interrupt ends the wait. */
    public T acquire() throws InterruptedException {
        return acquire(null);
    }

    /** Acquires, and waits for at most so long; {@link Duration#ZERO} does not wait. */
    public T acquire(Duration wait) throws InterruptedException {
        var all = new HashMap<>(fields);
        all.put("wait_ms", Agent.milliseconds("wait", wait));
        var call = new Link.Call("POST", url, all);
        Duration limit = wait == null ? null : wait.plus(Link.CALL_LIMIT);
        Lease sent = agent.clocks.read();
        Link link = null;
        T held = null;
        try {
            link = new Link(agent.socket(), call);
            var event = link.receive(limit);
            for (; "waiting".equals(event.get("event")); event = link.receive(limit)) {
                long place = Link.number(event, "place");
                onWait.accept(new Position(place, Link.text(event, "held_by")));
            }
            var found = factory.of(agent, path, link, event);
            found.start(sent, event);
            held = found;
            return held;
        } catch (BatonException error) {
            throw agent.explain(call, error);
        } finally {
            if (held == null && link != null) {
                link.close();
            }
        }
    }

    /** Returns a view of this request as a lock of {@code java.util.concurrent}. */
    public LockView asLock() {
        return new LockView(this);
    }
}
