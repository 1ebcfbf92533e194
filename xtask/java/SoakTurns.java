import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;

/** Curator's recipes in which a limited number hold at a time, each with the znode that stands for a turn. */
final class SoakTurns {
    private static final long PATIENCE_SECONDS = 20;

    /** One member. Used by one thread. */
    interface Turn {
        /** False if the time was over before its turn came. */
        boolean acquire() throws Exception;

        void release() throws Exception;

        /** What the library itself says. */
        boolean held();

        /** The znode that stands for this turn. */
        String node() throws Exception;
    }

    private SoakTurns() {}

    static Turn mutex(InterProcessMutex lock) {
        return new Turn() {
            private String node;

            @Override
            public boolean acquire() throws Exception {
                boolean acquired = lock.acquire(PATIENCE_SECONDS, TimeUnit.SECONDS);
                node = acquired ? lockPath(lock) : null;
                return acquired;
            }

            @Override
            public void release() throws Exception {
                node = null;
                lock.release();
            }

            @Override
            public boolean held() {
                return lock.isOwnedByCurrentThread();
            }

            @Override
            public String node() {
                return node;
            }
        };
    }

    static Turn read(CuratorFramework session, String path) {
        return mutex(new InterProcessReadWriteLock(session, path).readLock());
    }

    static Turn write(CuratorFramework session, String path) {
        return mutex(new InterProcessReadWriteLock(session, path).writeLock());
    }

    /** Of the thread that holds it; Curator keeps it to its own classes. */
    private static String lockPath(InterProcessMutex lock) throws Exception {
        Method path = InterProcessMutex.class.getDeclaredMethod("getLockPath");
        path.setAccessible(true);
        return (String) path.invoke(lock);
    }

    static Turn permit(CuratorFramework session, String path, int permits) {
        InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(session, path, permits);
        return new Turn() {
            private Lease lease;

            @Override
            public boolean acquire() throws Exception {
                lease = semaphore.acquire(PATIENCE_SECONDS, TimeUnit.SECONDS);
                return lease != null;
            }

            @Override
            public void release() {
                semaphore.returnLease(lease);
                lease = null;
            }

            @Override
            public boolean held() {
                return lease != null;
            }

            @Override
            public String node() {
                return path + "/leases/" + lease.getNodeName();
            }
        };
    }

    /** Leads until it is notified otherwise, then joins again. */
    static final class Latch implements Turn {
        private final CuratorFramework session;
        private final String path;
        private final SoakRegister register;
        private volatile LeaderLatch latch;

        Latch(CuratorFramework session, String path, SoakRegister register) {
            this.session = session;
            this.path = path;
            this.register = register;
        }

        @Override
        public boolean acquire() throws Exception {
            LeaderLatch joined = new LeaderLatch(session, path);
            joined.addListener(new LeaderLatchListener() {
                @Override
                public void isLeader() {}

                @Override
                public void notLeader() {
                    register.leave(Latch.this);
                }
            });
            latch = joined;
            joined.start();
            if (joined.await(PATIENCE_SECONDS, TimeUnit.SECONDS)) {
                return true;
            }
            joined.close();
            return false;
        }

        @Override
        public void release() throws Exception {
            latch.close();
        }

        @Override
        public boolean held() {
            return latch.hasLeadership();
        }

        @Override
        public String node() {
            return latch.getLastPathIsLeader();
        }
    }

    /** Leads until it is interrupted or has had its turn, then queues again. */
    static final class Selector extends LeaderSelectorListenerAdapter implements Turn {
        private final SoakRegister register;
        private final LeaderSelector selector;
        private volatile CountDownLatch enough = new CountDownLatch(0);
        private volatile String node;
        private boolean started;

        Selector(CuratorFramework session, String path, SoakRegister register) {
            this.register = register;
            selector = new LeaderSelector(session, path, this);
        }

        @Override
        public void takeLeadership(CuratorFramework session) throws Exception {
            Field mutex = LeaderSelector.class.getDeclaredField("mutex");
            mutex.setAccessible(true);
            CountDownLatch done = new CountDownLatch(1);
            enough = done;
            node = lockPath((InterProcessMutex) mutex.get(selector));
            try {
                done.await();
            } finally {
                node = null;
                register.leave(this);
            }
        }

        @Override
        public boolean acquire() {
            if (!started) {
                started = true;
                selector.start();
            }
            for (long left = PATIENCE_SECONDS * 200; left > 0; left--) {
                if (node != null) {
                    return true;
                }
                // Refused while it stands in the queue; where an error has thrown it out, it gets in again.
                selector.requeue();
                Peer.pause(5);
            }
            return false;
        }

        @Override
        public void release() {
            enough.countDown();
            while (node != null) {
                Peer.pause(1);
            }
        }

        @Override
        public boolean held() {
            return node != null;
        }

        @Override
        public String node() {
            return node;
        }
    }
}
