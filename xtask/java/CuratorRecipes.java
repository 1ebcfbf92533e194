import java.nio.charset.StandardCharsets;
import java.util.TreeSet;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.atomic.AtomicValue;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicInteger;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.recipes.queue.DistributedDelayQueue;
import org.apache.curator.framework.recipes.queue.DistributedPriorityQueue;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.QueueBase;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.recipes.shared.VersionedValue;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** The recipes of Apache Curator, as its documentation says to use them. */
final class CuratorRecipes {
    private CuratorRecipes() {}

    static Object open(String servers, String recipe, String path, String name, int timeoutMillis, Peer.Listener listener)
            throws Exception {
        CuratorFramework session = CuratorFrameworkFactory.newClient(
                servers, timeoutMillis, Math.max(timeoutMillis, 5_000), new ExponentialBackoffRetry(100, 8));
        session.getConnectionStateListenable().addListener((client, state) -> {
            if (state == ConnectionState.SUSPENDED || state == ConnectionState.LOST) {
                listener.report(state.name());
            }
        });
        session.start();
        if (!session.blockUntilConnected(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no server at " + servers);
        }
        switch (recipe) {
            case "curator-mutex":
                return lock(new InterProcessMutex(session, path));
            case "curator-read":
                return lock(new InterProcessReadWriteLock(session, path).readLock());
            case "curator-write":
                return lock(new InterProcessReadWriteLock(session, path).writeLock());
            case "curator-semaphore":
                return new Permit(new InterProcessSemaphoreV2(session, path, 2));
            case "curator-latch":
                return new Latch(session, path, name);
            case "curator-selector":
                return new Selector(session, path);
            case "curator-queue":
                return items(new SimpleDistributedQueue(session, path));
            case "curator-barrier":
                return barrier(new DistributedBarrier(session, path));
            case "curator-double-barrier":
                DistributedDoubleBarrier both = new DistributedDoubleBarrier(session, path, 3);
                return (Peer.Other) (command, argument) -> {
                    if (command.equals("enter")) {
                        both.enter();
                    } else {
                        both.leave();
                    }
                    return "";
                };
            case "curator-count":
                return count(new SharedCount(session, path, 0));
            case "curator-atomic":
                return atomic(new DistributedAtomicInteger(session, path, new ExponentialBackoffRetry(10, 20)));
            case "curator-group":
                return group(new GroupMember(session, path, name));
            case "curator-fifo":
            case "curator-priority":
            case "curator-delay":
            case "curator-locked-fifo":
                return new Consumed(session, recipe, path);
            default:
                throw new IllegalArgumentException(recipe);
        }
    }

    private static Peer.Turn lock(InterProcessLock lock) {
        return new Peer.Turn() {
            @Override
            public void acquire() throws Exception {
                lock.acquire();
            }

            @Override
            public void release() throws Exception {
                lock.release();
            }

            @Override
            public boolean held() {
                return lock.isAcquiredInThisProcess();
            }
        };
    }

    private static final class Permit implements Peer.Turn {
        private final InterProcessSemaphoreV2 semaphore;
        private volatile Lease lease;

        Permit(InterProcessSemaphoreV2 semaphore) {
            this.semaphore = semaphore;
        }

        @Override
        public void acquire() throws Exception {
            lease = semaphore.acquire();
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
    }

    private static final class Latch implements Peer.Turn {
        private final CuratorFramework session;
        private final String path;
        private final String name;
        private volatile LeaderLatch latch;

        Latch(CuratorFramework session, String path, String name) {
            this.session = session;
            this.path = path;
            this.name = name;
        }

        @Override
        public void acquire() throws Exception {
            latch = new LeaderLatch(session, path, name);
            latch.start();
            latch.await();
        }

        @Override
        public void release() throws Exception {
            latch.close();
        }

        @Override
        public boolean held() {
            return latch.hasLeadership();
        }
    }

    /** Leads from the call of takeLeadership until released; then queues again. */
    private static final class Selector extends LeaderSelectorListenerAdapter implements Peer.Turn {
        private final LeaderSelector selector;
        private volatile CountDownLatch elected;
        private volatile CountDownLatch enough;
        private boolean started;

        Selector(CuratorFramework session, String path) {
            selector = new LeaderSelector(session, path, this);
        }

        @Override
        public void takeLeadership(CuratorFramework client) throws Exception {
            elected.countDown();
            enough.await();
        }

        @Override
        public void acquire() throws Exception {
            CountDownLatch wait = new CountDownLatch(1);
            enough = new CountDownLatch(1);
            elected = wait;
            if (!started) {
                started = true;
                selector.start();
            } else {
                while (!selector.requeue()) {
                    Peer.pause(1);
                }
            }
            wait.await();
        }

        @Override
        public void release() {
            enough.countDown();
        }

        @Override
        public boolean held() {
            return selector.hasLeadership();
        }
    }

    private static Peer.Items items(SimpleDistributedQueue queue) {
        return new Peer.Items() {
            @Override
            public void put(String item) throws Exception {
                queue.offer(item.getBytes(StandardCharsets.UTF_8));
            }

            @Override
            public String take(long millis) throws Exception {
                byte[] item = queue.poll(millis, TimeUnit.MILLISECONDS);
                return item == null ? null : new String(item, StandardCharsets.UTF_8);
            }
        };
    }

    private static Peer.Other barrier(DistributedBarrier barrier) {
        return (command, argument) -> {
            switch (command) {
                case "set":
                    barrier.setBarrier();
                    return "";
                case "clear":
                    barrier.removeBarrier();
                    return "";
                default:
                    barrier.waitOnBarrier();
                    return "";
            }
        };
    }

    private static Peer.Other count(SharedCount count) throws Exception {
        count.start();
        return (command, argument) -> {
            for (int left = argument.isEmpty() ? 0 : Integer.parseInt(argument); left > 0; ) {
                VersionedValue<Integer> seen = count.getVersionedValue();
                left -= count.trySetCount(seen, seen.getValue() + 1) ? 1 : 0;
            }
            return Integer.toString(count.getCount());
        };
    }

    private static Peer.Other group(GroupMember member) {
        return (command, argument) -> {
            if (command.equals("join")) {
                member.start();
            } else if (command.equals("quit")) {
                member.close();
                return "";
            }
            return String.join(",", new TreeSet<>(member.getCurrentMembers().keySet()));
        };
    }

    /** The queues that consume in the background. One that puts does not consume. */
    private static final class Consumed implements Peer.Items, QueueConsumer<String>, QueueSerializer<String> {
        private final BlockingQueue<String> taken = new LinkedBlockingQueue<>();
        private final CuratorFramework session;
        private final String recipe;
        private final String path;
        private QueueBase<String> queue;

        Consumed(CuratorFramework session, String recipe, String path) {
            this.session = session;
            this.recipe = recipe;
            this.path = path;
        }

        private QueueBase<String> open(QueueConsumer<String> consumer) throws Exception {
            if (queue == null) {
                QueueBuilder<String> builder = QueueBuilder.builder(session, consumer, this, path);
                if (recipe.equals("curator-priority")) {
                    queue = builder.buildPriorityQueue(0);
                } else if (recipe.equals("curator-delay")) {
                    queue = builder.buildDelayQueue();
                } else if (recipe.equals("curator-locked-fifo")) {
                    queue = builder.lockPath(path + "-locks").buildQueue();
                } else {
                    queue = builder.buildQueue();
                }
                queue.start();
            }
            return queue;
        }

        @Override
        public void put(String item) throws Exception {
            QueueBase<String> opened = open(null);
            if (opened instanceof DistributedPriorityQueue) {
                ((DistributedPriorityQueue<String>) opened).put(item, 5);
            } else if (opened instanceof DistributedDelayQueue) {
                ((DistributedDelayQueue<String>) opened).put(item, System.currentTimeMillis() + 50);
            } else {
                ((DistributedQueue<String>) opened).put(item);
            }
            // Puts go out in the background; what is reported is in the tree.
            opened.flushPuts(10, TimeUnit.SECONDS);
        }

        @Override
        public String take(long millis) throws Exception {
            open(this);
            return taken.poll(millis, TimeUnit.MILLISECONDS);
        }

        @Override
        public void consumeMessage(String item) {
            taken.add(item);
        }

        @Override
        public void stateChanged(CuratorFramework client, ConnectionState state) {}

        @Override
        public byte[] serialize(String item) {
            return item.getBytes(StandardCharsets.UTF_8);
        }

        @Override
        public String deserialize(byte[] bytes) {
            return new String(bytes, StandardCharsets.UTF_8);
        }
    }

    private static Peer.Other atomic(DistributedAtomicInteger count) {
        return (command, argument) -> {
            for (int left = argument.isEmpty() ? 0 : Integer.parseInt(argument); left > 0; ) {
                left -= count.increment().succeeded() ? 1 : 0;
            }
            AtomicValue<Integer> value = count.get();
            return Integer.toString(value.postValue());
        };
    }
}
