import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooDefs.Perms;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Id;
import org.apache.zookeeper.data.Stat;

/**
 * Makes znodes of every kind, prints all that a client can see of a tree (but of the many znodes of one kind), and goes on with a session that another
 * process left open: what a move from one server to another must keep.
 */
public final class TreeTool {
    private static final List<ACL> OPEN = Ids.OPEN_ACL_UNSAFE;

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "fill" -> fill(args[1], args.length > 2 ? Integer.parseInt(args[2]) : 0);
            case "dump" -> dump(connect(args[1], 0, null));
            case "attach" -> attach(args[1], Long.parseUnsignedLong(args[2], 16), HexFormat.of().parseHex(args[3]));
            default -> throw new IllegalArgumentException(args[0]);
        }
        // Without closing: an open session is what the others are to find.
        Runtime.getRuntime().halt(0);
    }

    private static ZooKeeper connect(String server, long session, byte[] password) throws Exception {
        CountDownLatch connected = new CountDownLatch(1);
        ZooKeeper[] client = new ZooKeeper[1];
        var watcher = (org.apache.zookeeper.Watcher) event -> {
            if (event.getState() == KeeperState.Expired) {
                System.err.println("the session has expired");
                Runtime.getRuntime().halt(1);
            }
            if (event.getState() == KeeperState.SyncConnected) {
                connected.countDown();
            }
        };
        client[0] = password == null ? new ZooKeeper(server, 40000, watcher)
            : new ZooKeeper(server, 40000, watcher, session, password);
        connected.await();
        client[0].addAuthInfo("digest", "alice:secret".getBytes(StandardCharsets.UTF_8));
        return client[0];
    }

    private static void fill(String server, int many) throws Exception {
        ZooKeeper client = connect(server, 0, null);
        client.create("/plain", bytes("data"), OPEN, CreateMode.PERSISTENT);
        client.create("/plain/empty", new byte[0], OPEN, CreateMode.PERSISTENT);
        client.create("/plain/null", null, OPEN, CreateMode.PERSISTENT);
        client.create("/plain/\u00fc\u4e2d", bytes("\u00fc"), OPEN, CreateMode.PERSISTENT);
        for (int i = 0; i < 5; i++) {
            client.setData("/plain", bytes("data" + i), -1);
        }
        client.create("/secret", bytes("x"), Ids.CREATOR_ALL_ACL, CreateMode.PERSISTENT);
        client.create("/readable", bytes("x"), Ids.READ_ACL_UNSAFE, CreateMode.PERSISTENT);
        client.create("/mixed", bytes("x"), OPEN, CreateMode.PERSISTENT);
        client.setACL("/mixed", Arrays.asList(
            new ACL(Perms.READ | Perms.ADMIN, Ids.ANYONE_ID_UNSAFE), new ACL(Perms.ALL, new Id("ip", "127.0.0.1"))), 0);
        client.create("/jobs", null, OPEN, CreateMode.PERSISTENT);
        for (int i = 0; i < 6; i++) {
            client.create("/jobs/job-", bytes("" + i), OPEN, CreateMode.PERSISTENT_SEQUENTIAL);
        }
        client.delete("/jobs/job-0000000001", -1);
        client.delete("/jobs/job-0000000005", -1);
        client.create("/box", null, OPEN, CreateMode.CONTAINER);
        client.create("/box/inside", null, OPEN, CreateMode.PERSISTENT);
        client.create("/short", bytes("t"), OPEN, CreateMode.PERSISTENT_WITH_TTL, new Stat(), 86_400_000L);
        client.create("/locks", null, OPEN, CreateMode.PERSISTENT);
        client.create("/locks/lock-", bytes("me"), OPEN, CreateMode.EPHEMERAL_SEQUENTIAL);
        client.create("/alive", bytes("me"), Ids.CREATOR_ALL_ACL, CreateMode.EPHEMERAL);
        client.multi(Arrays.asList(
            Op.create("/multi", bytes("m"), OPEN, CreateMode.PERSISTENT),
            Op.create("/multi/b", bytes("1"), OPEN, CreateMode.PERSISTENT),
            Op.create("/multi/a", bytes("2"), OPEN, CreateMode.PERSISTENT),
            Op.create("/multi/n-", bytes("3"), OPEN, CreateMode.EPHEMERAL_SEQUENTIAL),
            Op.setData("/multi/a", bytes("3"), 0),
            Op.check("/plain", 5),
            Op.delete("/multi/b", 0)));
        try {
            client.multi(Arrays.asList(
                Op.create("/never", null, OPEN, CreateMode.PERSISTENT), Op.check("/plain", 99)));
            throw new IllegalStateException("a multi with a wrong version succeeded");
        } catch (KeeperException.BadVersionException expected) {
            // Both halves of a failed multi are in the log.
        }
        ZooKeeper gone = connect(server, 0, null);
        gone.create("/locks/lock-", bytes("gone"), OPEN, CreateMode.EPHEMERAL_SEQUENTIAL);
        gone.close();
        Semaphore inFlight = new Semaphore(1000);
        for (int i = 0; i < many; i++) {
            if (i % 1000 == 0) {
                client.create("/many-" + i / 1000, null, OPEN, CreateMode.PERSISTENT);
            }
            inFlight.acquire();
            client.create("/many-" + i / 1000 + "/node-" + i, bytes("value " + i), OPEN, CreateMode.PERSISTENT,
                (code, path, context, name) -> inFlight.release(), null);
        }
        inFlight.acquire(1000);
        System.out.println(Long.toHexString(client.getSessionId()) + " " + HexFormat.of().formatHex(client.getSessionPasswd()));
    }

    private static void dump(ZooKeeper client) throws Exception {
        List<String> pending = new ArrayList<>(List.of("/"));
        var out = new java.io.PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false, StandardCharsets.UTF_8);
        while (!pending.isEmpty()) {
            String path = pending.remove(pending.size() - 1);
            Stat stat = new Stat();
            byte[] data = client.getData(path, false, stat);
            List<ACL> acl = client.getACL(path, new Stat());
            out.println(path + " " + (data == null ? "null" : HexFormat.of().formatHex(data)) + " czxid=" + stat.getCzxid()
                + " mzxid=" + stat.getMzxid() + " pzxid=" + stat.getPzxid() + " ctime=" + stat.getCtime() + " mtime=" + stat.getMtime()
                + " version=" + stat.getVersion() + " cversion=" + stat.getCversion() + " aversion=" + stat.getAversion()
                + " owner=" + Long.toHexString(stat.getEphemeralOwner()) + " length=" + stat.getDataLength()
                + " children=" + stat.getNumChildren() + " acl=" + acl.toString().replaceAll("\\s", ""));
            List<String> children = client.getChildren(path, false);
            Collections.sort(children, Collections.reverseOrder());
            for (String child : children) {
                if (child.startsWith("many-")) {
                    continue;
                }
                pending.add((path.equals("/") ? "" : path) + "/" + child);
            }
        }
        out.flush();
    }

    private static void attach(String server, long session, byte[] password) throws Exception {
        ZooKeeper client = connect(server, session, password);
        if (client.getSessionId() != session) {
            throw new IllegalStateException("another session");
        }
        // Only the owner's session shows them here.
        List<String> mine = client.getEphemerals();
        Collections.sort(mine);
        String next = client.create("/jobs/job-", null, OPEN, CreateMode.PERSISTENT_SEQUENTIAL);
        System.out.println(mine + " " + next);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
