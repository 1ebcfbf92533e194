package io.github.batonlocks;

import java.time.Duration;
import java.util.Base64;

/** Claim on an item of a work queue. */
public final class Item extends Held {
    Item(Grant grant) { super(grant); }

    /** The item's id. */
    public String id() { return Json.text(grant.event(), "item"); }

    /** The fencing token. */
    public long token() { return Json.number(grant.event(), "token"); }

    /** How often the item was taken. */
    public int attempt() { return (int) Json.number(grant.event(), "attempt"); }

    /** The payload. */
    public byte[] data() {
        return Base64.getDecoder().decode(Json.text(grant.event(), "data_base64"));
    }

    private Link.Call call(String action, String reason, Duration delay) {
        String url = Agent.route("queue", path(), "/" + action);
        return new Link.Call("POST", url, "claim", grant.event().get("claim"), "reason", reason,
                "delay_ms", delay);
    }

    /** Removes the item: it is done. */
    public void ack() { finish(call("ack", null, null)); }

    /** Gives the item back for after a delay, or to the dead letters after its last attempt. */
    public void nack(String reason, Duration delay) { finish(call("nack", reason, delay)); }

    /** Extends the claim by the time that it had at first. */
    public void extend() {
        check();
        grant.agent().ask(call("extend", null, null));
    }

    /** Gives the item back unless it is settled. */
    @Override
    public void close() { nack("the consumer has not acknowledged it", Duration.ZERO); }
}
