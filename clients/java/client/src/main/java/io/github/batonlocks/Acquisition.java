package io.github.batonlocks;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.function.Consumer;
import java.util.function.Function;

/**
 * Request for something to hold. The agent refuses an option that the request does not have.
 *
 * @param <T> what is held
 */
public final class Acquisition<T extends Held> {
    /**
     * Position in a wait queue.
     *
     * @param place number of holders and waiters before the caller
     * @param heldBy the holder's node
     */
    public record Position(long place, String heldBy) {}

    private final Agent agent;
    private final String path;
    private final Link.Call call;
    private final Function<Held.Grant, T> kind;
    private Consumer<Position> onWait = position -> { };

    Acquisition(Agent agent, String path, Link.Call call, Function<Held.Grant, T> kind) {
        this.agent = agent;
        this.path = path;
        this.call = call;
        this.kind = kind;
    }

    Acquisition<T> with(String field, Object value) {
        Json.put(call.fields(), field, value);
        return this;
    }

    /** Shares a lock among readers. */
    public Acquisition<T> read() { return with("mode", "read"); }

    /** Takes a lock that readers share for itself. */
    public Acquisition<T> write() { return with("mode", "write"); }

    /** Lets a lock have several holders. */
    public Acquisition<T> slots(int slots) {
        call.fields().putIfAbsent("mode", "slot");
        return with("slots", slots);
    }

    /** Name that is shown to others; otherwise it is the program's. */
    public Acquisition<T> name(String name) { return with("name", name); }

    /** Time after which the servers give up a session without messages. */
    public Acquisition<T> sessionTimeout(Duration time) { return with("session_timeout_ms", time); }

    /** Time for which nobody gets an exclusive lock after its holder has died. */
    public Acquisition<T> lockDelay(Duration delay) { return with("lock_delay_ms", delay); }

    /** Time for which the claim of an item lasts without {@link Item#extend}. */
    public Acquisition<T> visibility(Duration time) { return with("visibility_ms", time); }

    /** Data that is shown to those who watch an election or members. */
    public Acquisition<T> data(byte[] data) { return with("data_base64", data); }

    /** Function that receives each change of the position in the wait queue. */
    public Acquisition<T> onWait(Consumer<Position> function) {
        onWait = function;
        return this;
    }

    /** Acquires, and waits as long as it takes. An interrupt ends the wait. */
    public T acquire() throws InterruptedException { return acquire(null); }

    /** Acquires, and waits for at most so long; {@link Duration#ZERO} does not wait. */
    public T acquire(Duration wait) throws InterruptedException {
        var limited = new Link.Call(call.method(), call.url(), Link.limit(wait),
                new LinkedHashMap<>(call.fields()));
        Json.put(limited.fields(), "wait_ms", wait);
        Lease sent = agent.clocks.read();
        Link link = null;
        try {
            link = agent.open(limited);
            var event = link.receive(limited.limit());
            for (; "waiting".equals(event.get("event")); event = link.receive(limited.limit())) {
                long place = Json.number(event, "place");
                onWait.accept(new Position(place, Json.text(event, "held_by")));
            }
            // What is held stays with the agent that has given it.
            var giver = new Agent(link.agent, agent.clocks);
            T held = kind.apply(new Held.Grant(giver, path, link, event));
            held.start(sent);
            return held;
        } catch (Throwable error) {
            if (link != null) {
                link.giveBack();
            }
            if (error instanceof BatonException) {
                Link.throwIfInterrupted();
            }
            throw error;
        }
    }

    /** Returns a view of this request as a lock of {@code java.util.concurrent}. */
    public LockView asLock() { return new LockView(this); }
}
