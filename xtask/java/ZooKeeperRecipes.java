import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.recipes.leader.LeaderElectionSupport;
import org.apache.zookeeper.recipes.lock.LockListener;
import org.apache.zookeeper.recipes.lock.WriteLock;
import org.apache.zookeeper.recipes.queue.DistributedQueue;

/** The recipes that come with Apache ZooKeeper, as its documentation says to use them. */
final class ZooKeeperRecipes {
    private static final List<ACL> OPEN = ZooDefs.Ids.OPEN_ACL_UNSAFE;

    /** Between two checks whether the library has hung. */
    private static final long LOOK_MILLIS = 200;

    private ZooKeeperRecipes() {}

    static Object open(String servers, String recipe, String path, String name, int timeoutMillis, Peer.Listener listener)
            throws Exception {
        CountDownLatch connected = new CountDownLatch(1);
        ZooKeeper session = new ZooKeeper(servers, timeoutMillis, event -> {
            if (event.getState() == Watcher.Event.KeeperState.SyncConnected) {
                connected.countDown();
            } else {
                listener.report(event.getState().name());
            }
        });
        if (!connected.await(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no server at " + servers);
        }
        switch (recipe) {
            case "zk-lock":
                return new Lock(session, path, false);
            case "zk-lock-retried":
                return new Lock(session, path, true);
            case "zk-election":
                return new Election(session, path, name, false);
            case "zk-election-retried":
                return new Election(session, path, name, true);
            case "zk-queue":
                return items(new DistributedQueue(session, path, OPEN));
            default:
                throw new IllegalArgumentException(recipe);
        }
    }

    private static void ensure(ZooKeeper session, String path) throws Exception {
        try {
            session.create(path, new byte[0], OPEN, CreateMode.PERSISTENT);
        } catch (KeeperException.NodeExistsException there) {
            // Somebody else was first.
        }
    }

    private static final class Lock implements Peer.Turn {
        private final ZooKeeper session;
        private final String path;
        private final boolean retried;
        private volatile WriteLock lock;

        Lock(ZooKeeper session, String path, boolean retried) {
            this.session = session;
            this.path = path;
            this.retried = retried;
        }

        @Override
        public void acquire() throws Exception {
            CountDownLatch acquired = new CountDownLatch(1);
            if (lock == null) {
                lock = new WriteLock(session, path, OPEN);
            }
            lock.setLockListener(new LockListener() {
                @Override
                public void lockAcquired() {
                    acquired.countDown();
                }

                @Override
                public void lockReleased() {}
            });
            if (lock.lock()) {
                return;
            }
            while (retried && !acquired.await(LOOK_MILLIS, TimeUnit.MILLISECONDS)) {
                if (first() && !acquired.await(LOOK_MILLIS, TimeUnit.MILLISECONDS)) {
                    Peer.say("stuck", System.nanoTime(), "first in the queue, and neither granted nor notified");
                    release();
                    acquire();
                    return;
                }
            }
            acquired.await();
        }

        /** Whether nobody stands before it (H31: it may not know). */
        private boolean first() throws Exception {
            long own = number(lock.getId());
            return session.getChildren(path, false).stream().allMatch(name -> number(name) >= own);
        }

        private static long number(String name) {
            return Long.parseLong(name.substring(name.lastIndexOf('-') + 1));
        }

        @Override
        public void release() {
            // Closed, so that a watch left behind does not take it again.
            lock.unlock();
            lock.close();
            lock = null;
        }

        @Override
        public boolean held() {
            WriteLock present = lock;
            return present != null && present.isOwner();
        }
    }

    private static final class Election implements Peer.Turn {
        private final ZooKeeper session;
        private final String path;
        private final String name;
        private final boolean retried;
        private LeaderElectionSupport support;
        private volatile boolean leader;

        Election(ZooKeeper session, String path, String name, boolean retried) throws Exception {
            this.session = session;
            this.path = path;
            this.name = name;
            this.retried = retried;
            ensure(session, path);
        }

        @Override
        public void acquire() throws Exception {
            while (!elected()) {
                Peer.say("stuck", System.nanoTime(), "failed, and its znode stays in the line");
                support.stop();
            }
            leader = true;
        }

        /** False if the election failed, as it does when a znode goes between its two reads (H60). */
        private boolean elected() throws Exception {
            CountDownLatch elected = new CountDownLatch(1);
            AtomicBoolean failed = new AtomicBoolean();
            support = new LeaderElectionSupport();
            support.setZooKeeper(session);
            support.setRootNodeName(path);
            support.setHostName(name);
            support.addListener(event -> {
                if (event == LeaderElectionSupport.EventType.ELECTED_COMPLETE) {
                    elected.countDown();
                } else if (event == LeaderElectionSupport.EventType.FAILED && retried) {
                    failed.set(true);
                    elected.countDown();
                } else if (event == LeaderElectionSupport.EventType.FAILED) {
                    Peer.say("error", System.nanoTime(), "election failed");
                }
            });
            support.start();
            elected.await();
            return !failed.get();
        }

        @Override
        public void release() {
            leader = false;
            support.stop();
        }

        @Override
        public boolean held() {
            return leader;
        }
    }

    private static Peer.Items items(DistributedQueue queue) {
        return new Peer.Items() {
            @Override
            public void put(String item) throws Exception {
                queue.offer(item.getBytes(StandardCharsets.UTF_8));
            }

            @Override
            public String take(long millis) throws Exception {
                byte[] item = queue.poll();
                if (item == null) {
                    Peer.pause(Math.min(millis, 20));
                    item = queue.poll();
                }
                return item == null ? null : new String(item, StandardCharsets.UTF_8);
            }
        };
    }
}
