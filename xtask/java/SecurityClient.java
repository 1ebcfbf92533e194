import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.ACL;

/**
 * One client that connects, does one thing, and prints what became of it as the last line: done, no-auth or refused. How it
 * connects and who it is, is in the system properties; a digest is its last argument, if it has one.
 */
public final class SecurityClient {
    public static void main(String[] args) throws Exception {
        String server = args[0];
        long patience = Long.parseLong(args[1]);
        String act = args[2];
        String path = args[3];
        CountDownLatch settled = new CountDownLatch(1);
        AtomicBoolean refused = new AtomicBoolean();
        ZooKeeper client = new ZooKeeper(server, 30000, event -> {
            if (event.getState() == KeeperState.AuthFailed) {
                refused.set(true);
            }
            boolean usesSasl = System.getProperty("java.security.auth.login.config") != null;
            KeeperState awaited = usesSasl ? KeeperState.SaslAuthenticated : KeeperState.SyncConnected;
            if (event.getState() == awaited || refused.get()) {
                settled.countDown();
            }
        });
        String outcome = "refused";
        if (settled.await(patience, TimeUnit.MILLISECONDS) && !refused.get()) {
            if (args.length > 4) {
                client.addAuthInfo("digest", args[4].getBytes(StandardCharsets.UTF_8));
            }
            outcome = act(client, act, path);
        }
        System.out.println(outcome);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static String act(ZooKeeper client, String act, String path) throws Exception {
        byte[] data = "data".getBytes(StandardCharsets.UTF_8);
        try {
            switch (act) {
                case "open" -> {
                    client.create(path, data, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
                    client.getData(path, false, null);
                    client.delete(path, -1);
                }
                case "own" -> {
                    List<ACL> own = Ids.CREATOR_ALL_ACL;
                    client.create(path, data, own, CreateMode.PERSISTENT);
                }
                case "read" -> client.getData(path, false, null);
                default -> throw new IllegalArgumentException(act);
            }
            client.close();
            return "done";
        } catch (KeeperException.NoAuthException error) {
            return "no-auth";
        } catch (KeeperException.ConnectionLossException | KeeperException.AuthFailedException error) {
            return "refused";
        }
    }
}
