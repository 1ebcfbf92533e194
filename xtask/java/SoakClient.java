import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.BoundedExponentialBackoffRetry;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

/** One session of the soak, and what became of it. */
final class SoakClient {
    /** All outages of a soak are shorter than these retries together. */
    private static final int RETRIES = 29;

    final String name;
    final CuratorFramework session;
    /** Whether its way to the server is cut for longer than its timeout now and then, or its session was ended. */
    volatile boolean mayLoseSession;
    final AtomicInteger suspended = new AtomicInteger();
    private final String servers;
    private final int timeoutMillis;
    private final long firstSessionId;

    SoakClient(String name, String servers, int timeoutMillis, boolean mayLoseSession) throws Exception {
        this.name = name;
        this.servers = servers;
        this.timeoutMillis = timeoutMillis;
        this.mayLoseSession = mayLoseSession;
        session = CuratorFrameworkFactory.newClient(
                servers, timeoutMillis, timeoutMillis, new BoundedExponentialBackoffRetry(20, 1_000, RETRIES));
        session.getConnectionStateListenable().addListener((client, state) -> {
            if (state == ConnectionState.SUSPENDED) {
                suspended.incrementAndGet();
            }
        });
        session.start();
        if (!session.blockUntilConnected(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no server at " + servers);
        }
        firstSessionId = sessionId();
    }

    long sessionId() throws Exception {
        return session.getZookeeperClient().getZooKeeper().getSessionId();
    }

    /** Ends its session at the server, with all its nodes; for the library that is an expiry. */
    synchronized void endSession() {
        mayLoseSession = true;
        try {
            long ended = sessionId();
            while (sessionId() == ended) {
                ZooKeeper old = session.getZookeeperClient().getZooKeeper();
                CountDownLatch reached = new CountDownLatch(1);
                ZooKeeper second = new ZooKeeper(servers, timeoutMillis, event -> {
                    if (event.getState() == KeeperState.SyncConnected || event.getState() == KeeperState.Expired) {
                        reached.countDown();
                    }
                }, ended, old.getSessionPasswd());
                reached.await(timeoutMillis, TimeUnit.MILLISECONDS);
                second.close();
                for (int waited = 0; waited < timeoutMillis && sessionId() == ended; waited += 50) {
                    Peer.pause(50);
                }
            }
        } catch (Exception error) {
            throw new IllegalStateException(name + " cannot end its session", error);
        }
    }

    /** The znode, behind everything that any server has acknowledged by now; null if there is none. */
    Stat newest(String node) throws Exception {
        while (true) {
            CountDownLatch answered = new CountDownLatch(1);
            AtomicInteger code = new AtomicInteger();
            // The read comes behind it, on this connection or on one to a server that is as far.
            session.getZookeeperClient().getZooKeeper().sync(node, (result, path, context) -> {
                code.set(result);
                answered.countDown();
            }, null);
            Stat stat = session.checkExists().forPath(node);
            answered.await();
            if (code.get() == KeeperException.Code.OK.intValue()) {
                return stat;
            }
            Peer.pause(10);
        }
    }

    /** Whether the session is another than at the start. */
    boolean lostSession() throws Exception {
        return sessionId() != firstSessionId;
    }
}
