// Says to a server everything that ZooKeeper's own client can say, once. Run by the recorder, which cuts the
// connection when this prints "cut", so that the client has to arm its watches again.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.admin.ZooKeeperAdmin;
import org.apache.zookeeper.data.Stat;

public class Conversation {
    interface Call {
        void run() throws Exception;
    }

    static final BufferedReader ORDERS = new BufferedReader(new InputStreamReader(System.in));

    static void fails(Call call) throws Exception {
        try {
            call.run();
        } catch (KeeperException expected) {
            return;
        }
        throw new IllegalStateException("a call that must fail did not");
    }

    static class Events implements Watcher {
        final LinkedBlockingQueue<WatchedEvent> queue = new LinkedBlockingQueue<>();

        public void process(WatchedEvent event) {
            queue.add(event);
        }

        void await(Event.KeeperState state) throws Exception {
            while (true) {
                WatchedEvent event = queue.poll(20, TimeUnit.SECONDS);
                if (event == null) {
                    throw new IllegalStateException("no " + state);
                }
                if (event.getType() == Event.EventType.None && event.getState() == state) {
                    return;
                }
            }
        }
    }

    static void cut(Events events) throws Exception {
        System.out.println("cut");
        ORDERS.readLine();
        events.await(Watcher.Event.KeeperState.SyncConnected);
    }

    public static void main(String[] args) throws Exception {
        String server = args[0];
        byte[] data = "data".getBytes();
        System.setProperty("zookeeper.sasl.client", "false");
        Events events = new Events();
        ZooKeeperAdmin zk = new ZooKeeperAdmin(server, 3000, events);
        events.await(Watcher.Event.KeeperState.SyncConnected);
        zk.addAuthInfo("digest", "user:secret".getBytes());

        zk.create("/g", data, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        Stat stat = new Stat();
        zk.create("/g/stat", null, Ids.CREATOR_ALL_ACL, CreateMode.PERSISTENT, stat);
        zk.create("/g/eph", new byte[0], Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL);
        zk.create("/g/seq-", data, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT_SEQUENTIAL);
        zk.create("/g/eseq-", data, Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL_SEQUENTIAL, stat);
        zk.create("/g/container", data, Ids.OPEN_ACL_UNSAFE, CreateMode.CONTAINER);
        zk.create("/g/ttl", data, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT_WITH_TTL, stat, 60000);
        zk.create("/g/ttl-", data, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL, stat, 60000);
        fails(() -> zk.create("/g", data, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT));
        fails(() -> zk.create("/g/eph/child", data, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT));
        fails(() -> zk.create("/none/child", data, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT));

        Events watches = new Events();
        zk.exists("/g", watches);
        zk.exists("/g/missing", watches);
        zk.getData("/g", watches, stat);
        zk.getData("/g/stat", false, stat);
        fails(() -> zk.getData("/g/missing", false, new Stat()));
        zk.getChildren("/g", watches);
        zk.getChildren("/g", false, stat);
        zk.setData("/g", "new".getBytes(), 0);
        fails(() -> zk.setData("/g", data, 7));
        zk.create("/g/missing", data, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        zk.getACL("/g/stat", stat);
        zk.setACL("/g/missing", Ids.READ_ACL_UNSAFE, 0);
        fails(() -> zk.setACL("/g/missing", Ids.OPEN_ACL_UNSAFE, -1));
        fails(() -> zk.setData("/g/missing", data, -1));
        fails(() -> zk.delete("/g", -1));

        CountDownLatch synced = new CountDownLatch(1);
        zk.sync("/g", (code, path, context) -> synced.countDown(), null);
        synced.await();
        zk.getEphemerals("/g");
        zk.getAllChildrenNumber("/g");
        zk.whoAmI();
        zk.getConfig(false, stat);
        fails(() -> zk.reconfigure("server.2=127.0.0.1:1:2;3", "1", null, -1, new Stat()));

        List<Op> writes = Arrays.asList(
            Op.check("/g", -1),
            Op.create("/g/m1", data, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT),
            Op.create("/g/m2", data, Ids.OPEN_ACL_UNSAFE, CreateMode.CONTAINER),
            Op.create("/g/m3", data, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT_WITH_TTL, 60000),
            Op.setData("/g/m1", "again".getBytes(), -1),
            Op.delete("/g/m1", -1));
        zk.multi(writes);
        fails(() -> zk.multi(Arrays.asList(
            Op.setData("/g", data, -1), Op.check("/g", 99), Op.delete("/g/m2", -1))));
        zk.multi(Arrays.asList(Op.getData("/g"), Op.getChildren("/g"), Op.getData("/none")));

        zk.addWatch("/g", watches, AddWatchMode.PERSISTENT);
        zk.addWatch("/g", watches, AddWatchMode.PERSISTENT_RECURSIVE);
        zk.create("/g/w", data, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        zk.delete("/g/w", 0);
        zk.exists("/g/never", watches);
        zk.getData("/g/stat", watches, stat);
        zk.getChildren("/g/stat", watches);
        cut(events);
        zk.removeWatches("/g/stat", watches, Watcher.WatcherType.Data, false);
        zk.removeAllWatches("/g/stat", Watcher.WatcherType.Children, false);
        // Idle for longer than a third of the session timeout: a ping.
        Thread.sleep(1500);
        zk.close();

        Events plain = new Events();
        ZooKeeper second = new ZooKeeper(server, 3000, plain);
        plain.await(Watcher.Event.KeeperState.SyncConnected);
        second.exists("/g/never", plain);
        second.getData("/g", plain, stat);
        second.getChildren("/g", plain);
        fails(() -> second.getData("/g/stat", false, new Stat()));
        cut(plain);
        second.exists("/g", false);
        second.close();

        System.setProperty("zookeeper.sasl.client", "true");
        Events sasl = new Events();
        ZooKeeper third = new ZooKeeper(server, 3000, sasl);
        sasl.await(Watcher.Event.KeeperState.SaslAuthenticated);
        third.whoAmI();
        third.close();

        System.setProperty("zookeeper.sasl.client", "false");
        Events refused = new Events();
        ZooKeeper wrong = new ZooKeeper(server, 3000, refused, 0x1234, new byte[16]);
        refused.await(Watcher.Event.KeeperState.Expired);
        wrong.close();
        System.out.println("done");
        System.exit(0);
    }
}
