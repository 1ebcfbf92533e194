package io.github.batonlocks;

import java.time.Duration;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;

/** Claim on an item of a work queue. */
public final class Item extends Held {
    private final Map<String, Object> event;

    Item(Agent agent, String path, Link link, Map<String, Object> event) {
        super(agent, path, link);
        this.event = event;
    }

    /** The item's id. */
    public String id() {
        return Link.text(event, "item");
    }

    /** The fencing token. */
    public long token() {
        return Link.number(event, "token");
    }

    /** How often the item was taken. */
    public int attempt() {
        return (int) Link.number(event, "attempt");
    }

    /** The payload. */
    public byte[] data() {
        return Base64.getDecoder().decode(Link.text(event, "data_base64"));
    }

    private Link.Call call(String action, String reason, Duration delay) {
        var fields = new HashMap<String, Object>();
        fields.put("claim", event.get("claim"));
        fields.put("reason", reason);
        fields.put("delay_ms", Agent.milliseconds("delay", delay));
        return new Link.Call("POST", Agent.route("queue", path, "/" + action), fields);
    }

    /** Removes the item: it is done. */
    public void ack() {
        finish(call("ack", null, null));
    }

    /** Gives the item back for after a delay, or to the dead letters after its last attempt. */
    public void nack(String reason, Duration delay) {
        finish(call("nack", reason, delay));
    }

    /** Extends the claim by the time that it had at first. */
    public void extend() {
        check();
        agent.ask(call("extend", null, null), Link.CALL_LIMIT);
    }

    /** Gives the item back unless it is settled. */
    @Override
    public void close() {
        nack("the consumer has not acknowledged it", Duration.ZERO);
    }
}
