import java.io.Closeable;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.cache.ChildData;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.PathChildrenCache;
import org.apache.curator.framework.recipes.cache.TreeCache;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.recipes.shared.VersionedValue;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.data.Stat;

/** Curator's recipes that hold a value: counters, caches, a node that is to stay. Each does steps, and is judged at the end. */
final class SoakValues {
    private static final int FOLDERS = 6;
    private static final int CHILDREN = 6;
    private static final int MOST_INCREMENTS = 1_000_000;

    /** One participant. */
    interface Value {
        /** True if the step was done; false if it may or may not have been. */
        boolean step() throws Exception;

        /** What is wrong at the end, after `done` steps of all; null if nothing is. It may be asked again. */
        String fault(SoakClient judge, long done) throws Exception;

        void close() throws Exception;
    }

    private SoakValues() {}

    static Value atomic(CuratorFramework session, String path) {
        DistributedAtomicLong count = new DistributedAtomicLong(session, path, new RetryNTimes(MOST_INCREMENTS, 5));
        return new Value() {
            @Override
            public boolean step() throws Exception {
                return count.increment().succeeded();
            }

            @Override
            public String fault(SoakClient judge, long done) throws Exception {
                return lost(count.get().postValue(), done);
            }

            @Override
            public void close() {}
        };
    }

    static Value shared(CuratorFramework session, String path) throws Exception {
        SharedCount count = new SharedCount(session, path, 0);
        count.start();
        return new Value() {
            @Override
            public boolean step() throws Exception {
                VersionedValue<Integer> seen = count.getVersionedValue();
                return count.trySetCount(seen, seen.getValue() + 1);
            }

            @Override
            public String fault(SoakClient judge, long done) throws Exception {
                // What this client received from its watch, against the tree.
                int there = java.nio.ByteBuffer.wrap(judge.session.getData().forPath(path)).getInt();
                return count.getCount() != there ? "shows " + count.getCount() + " of " + there : lost(there, done);
            }

            @Override
            public void close() throws Exception {
                count.close();
            }
        };
    }

    /** Curator sends an increment again whose reply was lost, and may then count it twice (H77): never too few. */
    private static String lost(long there, long done) {
        return there < done ? (done - there) + " increments lost of " + done : null;
    }

    static Value persistent(SoakClient who, SoakClient judge, String path) throws Exception {
        byte[] data = who.name.getBytes(StandardCharsets.UTF_8);
        PersistentNode node = new PersistentNode(who.session, CreateMode.EPHEMERAL, false, path, data);
        node.start();
        node.waitForInitialCreate(30, TimeUnit.SECONDS);
        return new Value() {
            @Override
            public boolean step() throws Exception {
                Stat before = judge.session.checkExists().forPath(path);
                if (before == null) {
                    Peer.pause(5);
                    return false;
                }
                judge.session.delete().quietly().guaranteed().forPath(path);
                for (int left = 6_000; left > 0; left--) {
                    Stat now = judge.session.checkExists().forPath(path);
                    if (now != null && now.getCzxid() > before.getCzxid()) {
                        return true;
                    }
                    Peer.pause(5);
                }
                throw new IllegalStateException(path + " did not come back");
            }

            @Override
            public String fault(SoakClient direct, long done) throws Exception {
                Stat now = direct.session.checkExists().forPath(path);
                return now == null ? path + " is not there"
                        : now.getEphemeralOwner() != who.sessionId() ? path + " is another session's" : null;
            }

            @Override
            public void close() throws Exception {
                node.close();
            }
        };
    }

    /** What a cache shows. */
    private interface Shown {
        void into(Map<String, String> seen);
    }

    static Value cache(String cache, CuratorFramework session, String path, long seed) throws Exception {
        for (int number = 0; number < FOLDERS; number++) {
            session.create().orSetData().creatingParentsIfNeeded().forPath(path + "/" + number, new byte[0]);
        }
        switch (cache) {
            case "CuratorCache":
                CuratorCache whole = CuratorCache.build(session, path);
                whole.start();
                return new Cached(session, path, seed, FOLDERS, seen -> whole.stream().forEach(child -> put(seen, child)), whole);
            case "TreeCache":
                TreeCache tree = TreeCache.newBuilder(session, path).build();
                tree.start();
                return new Cached(session, path, seed, FOLDERS, seen -> tree.iterator().forEachRemaining(child -> put(seen, child)), tree);
            default:
                PathChildrenCache folder = new PathChildrenCache(session, path + "/0", true);
                folder.start(PathChildrenCache.StartMode.NORMAL);
                return new Cached(session, path, seed, 1, seen -> folder.getCurrentData().forEach(child -> put(seen, child)), folder);
        }
    }

    private static void put(Map<String, String> seen, ChildData child) {
        seen.put(child.getPath(), shown(child.getData(), child.getStat()));
    }

    /** Not what changes with the children: no cache follows that. */
    private static String shown(byte[] data, Stat stat) {
        return new String(data, StandardCharsets.UTF_8) + " czxid " + stat.getCzxid() + " mzxid " + stat.getMzxid() + " version "
                + stat.getVersion();
    }

    /** Writes into a tree that a cache of this client shows. */
    private static final class Cached implements Value {
        private final CuratorFramework session;
        private final String path;
        private final Random random;
        private final int folders;
        private final Shown cache;
        private final Closeable open;

        /** A cache of one folder is written to in that one only. */
        Cached(CuratorFramework session, String path, long seed, int folders, Shown cache, Closeable open) {
            this.session = session;
            this.path = path;
            this.folders = folders;
            this.cache = cache;
            this.open = open;
            random = new Random(seed);
        }

        @Override
        public boolean step() throws Exception {
            String child = path + "/" + random.nextInt(folders) + "/" + random.nextInt(CHILDREN);
            byte[] data = Long.toString(random.nextLong()).getBytes(StandardCharsets.UTF_8);
            try {
                switch (random.nextInt(4)) {
                    case 0:
                        session.delete().forPath(child);
                        break;
                    case 1:
                        session.create().forPath(child, data);
                        break;
                    case 2:
                        session.setData().forPath(child, data);
                        break;
                    default:
                        session.create().orSetData().forPath(child, data);
                }
            } catch (KeeperException.NoNodeException | KeeperException.NodeExistsException another) {
                // Another writer was first.
            }
            return true;
        }

        @Override
        public String fault(SoakClient judge, long done) throws Exception {
            Map<String, String> there = new TreeMap<>();
            Map<String, String> seen = new TreeMap<>();
            walk(judge.session, path, there);
            if (folders == 1) {
                there.keySet().removeIf(node -> !node.startsWith(path + "/0/"));
            }
            cache.into(seen);
            List<String> found = new ArrayList<>();
            there.forEach((node, shown) -> {
                if (!shown.equals(seen.get(node))) {
                    found.add(node + " as " + seen.get(node) + ", not " + shown);
                }
            });
            seen.keySet().stream().filter(node -> !there.containsKey(node)).forEach(node -> found.add(node + ", which is gone"));
            return found.isEmpty() ? null : "shows " + found.get(0) + " (" + found.size() + " such)";
        }

        private static void walk(CuratorFramework session, String node, Map<String, String> there) throws Exception {
            Stat stat = new Stat();
            byte[] data = session.getData().storingStatIn(stat).forPath(node);
            there.put(node, shown(data, stat));
            for (String child : session.getChildren().forPath(node)) {
                walk(session, node + "/" + child, there);
            }
        }

        @Override
        public void close() throws Exception {
            open.close();
        }
    }
}
