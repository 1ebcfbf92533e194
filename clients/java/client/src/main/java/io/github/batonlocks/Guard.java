package io.github.batonlocks;

import io.github.batonlocks.BatonException.Lost;
import io.github.batonlocks.BatonException.Unknown;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.atomic.AtomicReference;

/** Guard of a lock or of a term of an election. */
public final class Guard extends Held {
    private final String id;
    private final long token;
    private final long term;
    private volatile boolean releaseRequested;

    Guard(Agent agent, String path, Link link, Map<String, Object> event) {
        super(agent, path, link);
        id = Link.text(event, "guard");
        token = Link.number(event, "token");
        term = Link.number(event, "term");
    }

    /** The agent's name of it. */
    public String id() {
        return id;
    }

    /** The fencing token: greater than that of each earlier holder. */
    public long token() {
        return token;
    }

    /** The number of the term of an election, else 0. */
    public long term() {
        return term;
    }

    /** Whether somebody has asked the holder to release. */
    public boolean releaseRequested() {
        return releaseRequested;
    }

    @Override
    void handle(Map<String, Object> event) {
        releaseRequested |= "release_requested".equals(event.get("event"));
        super.handle(event);
    }

    Link.Call call(String action, Map<String, Object> fields) {
        return new Link.Call("POST", "/v1/guard/" + id + "/" + action, fields);
    }

    /** Part of a guarded write. */
    public record Write(String op, String path, byte[] data, Integer version) {
        /** Sets a znode's data. */
        public static Write set(String path, byte[] data) {
            return new Write("set", path, data, null);
        }

        /** Creates a znode. */
        public static Write create(String path, byte[] data) {
            return new Write("create", path, data, null);
        }

        /** Deletes a znode. */
        public static Write delete(String path) {
            return new Write("delete", path, null, null);
        }

        /** Writes nothing, but lets nothing be written unless the znode has this version. */
        public static Write check(String path, int version) {
            return new Write("check", path, null, version);
        }

        /** Limits the write to a version of its znode. */
        public Write ifVersion(int wanted) {
            return new Write(op, path, data, wanted);
        }
    }

    /** Applies writes together if the lock is still held. */
    public void txn(Write... writes) {
        check();
        var list = new ArrayList<Object>();
        for (Write write : writes) {
            var fields = new HashMap<String, Object>();
            fields.put("op", write.op());
            fields.put("path", write.path());
            fields.put("data_base64", Agent.base64(write.data()));
            fields.put("version", write.version());
            list.add(fields);
        }
        agent.ask(call("txn", Map.of("writes", List.copyOf(list))), Link.CALL_LIMIT);
    }

    /**
     * Runs work in the calling thread, which is interrupted when the lock is lost. Throws
     * {@link Lost} if the lock is held no longer at its end.
     */
    public <T> T run(Callable<T> work) throws Exception {
        check();
        var worker = new AtomicReference<>(Thread.currentThread());
        lost().thenAccept(it -> {
            synchronized (worker) {
                if (worker.get() != null) {
                    worker.get().interrupt();
                }
            }
        });
        try {
            return work.call();
        } finally {
            synchronized (worker) {
                worker.set(null);
            }
            if (lost().isDone()) {
                // The interrupt was for the work.
                Thread.interrupted();
            }
            check();
        }
    }

    /** Releases, and waits until a server has confirmed it. A second call does nothing. */
    public void release() {
        var answer = finish(call("release", Map.of()));
        if ("lost".equals(answer.get("event"))) {
            throw new Lost(path, Link.text(answer, "reason"), NEXT_STEP);
        } else if ("unknown".equals(answer.get("event"))) {
            String next = Link.text(answer, "next_step");
            throw new Unknown("release of " + path, "no server confirms it", next);
        }
    }

    /** Releases. */
    @Override
    public void close() {
        release();
    }
}
