package io.github.batonlocks;

import io.github.batonlocks.BatonException.Lost;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Stream;

/** Guard of a lock or of a term of an election. */
public final class Guard extends Held {
    private volatile boolean releaseRequested;

    Guard(Grant grant) { super(grant); }

    /** The agent's name of it. */
    public String id() { return Json.text(grant.event(), "guard"); }

    /** The fencing token: greater than that of each earlier holder. */
    public long token() { return Json.number(grant.event(), "token"); }

    /** The number of the term of an election, else 0. */
    public long term() { return Json.number(grant.event(), "term"); }

    /** Whether somebody has asked the holder to release. */
    public boolean releaseRequested() { return releaseRequested; }

    @Override
    void handle(Map<String, Object> event) {
        releaseRequested |= "release_requested".equals(event.get("event"));
        super.handle(event);
    }

    Link.Call call(String action, Object... fields) {
        return new Link.Call("POST", "/v1/guard/" + id() + "/" + action, fields);
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
        public static Write delete(String path) { return new Write("delete", path, null, null); }

        /** Writes nothing, but lets nothing be written unless the znode has this version. */
        public static Write check(String path, int version) {
            return new Write("check", path, null, version);
        }

        /** Limits the write to a version of its znode. */
        public Write ifVersion(int wanted) { return new Write(op, path, data, wanted); }
    }

    /** Applies writes together if the lock is still held. */
    public void txn(Write... writes) {
        check();
        var list = Stream.of(writes).map(it -> Json.object("op", it.op, "path", it.path,
                "data_base64", it.data, "version", it.version)).toList();
        grant.agent().ask(call("txn", "writes", list));
    }

    /**
     * Runs work in the calling thread, which is interrupted when the lock is lost. Throws
     * {@link Lost} if the lock is held no longer at its end.
     */
    public <T> T run(Callable<T> work) throws Exception {
        check();
        var worker = new AtomicReference<>(Thread.currentThread());
        var interrupt = lost().thenRun(() ->
                Optional.ofNullable(worker.getAndSet(null)).ifPresent(Thread::interrupt));
        try {
            return work.call();
        } finally {
            if (worker.getAndSet(null) == null) {
                interrupt.join();
                // The interrupt was for the work.
                Thread.interrupted();
            }
            check();
        }
    }

    /** Releases, and waits until a server has confirmed it. A second call does nothing. */
    public void release() { close(); }
}
