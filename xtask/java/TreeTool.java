import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
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
 * Makes znodes of every kind, prints all that a client can see of a tree, and goes on with sessions that another process left
 * open: what a move from one server to another must keep. Of the many znodes of one kind it prints one line for each thousand,
 * with the hash of their lines.
 */
public final class TreeTool {
    private static final List<ACL> OPEN = Ids.OPEN_ACL_UNSAFE;
    private static final int SESSIONS = 8;
    private static final int ACLS = 40;
    private static final int IN_FLIGHT = 1000;

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "fill" -> fill(args[1], args.length > 2 ? Integer.parseInt(args[2]) : 0);
            case "attach" -> attach(args[1], Arrays.asList(args).subList(2, args.length));
            default -> throw new IllegalArgumentException(args[0]);
        }
        // Without closing: open sessions are what the others are to find.
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
        byte[] large = new byte[1_000_000];
        Arrays.fill(large, (byte) 'L');
        client.create("/large", large, OPEN, CreateMode.PERSISTENT);
        client.create("/bounded", null, OPEN, CreateMode.PERSISTENT);
        client.create("/zookeeper/quota/bounded", null, OPEN, CreateMode.PERSISTENT);
        client.create("/zookeeper/quota/bounded/zookeeper_limits", bytes("count=100,bytes=-1=;byteHardLimit=5000;countHardLimit=-1"),
            OPEN, CreateMode.PERSISTENT);
        client.create("/zookeeper/quota/bounded/zookeeper_stats", bytes("count=0,bytes=0"), OPEN, CreateMode.PERSISTENT);
        for (int i = 0; i < 3; i++) {
            client.create("/bounded/n" + i, bytes("counted " + i), OPEN, CreateMode.PERSISTENT);
        }
        client.setData("/bounded/n1", bytes("counted again"), -1);
        client.delete("/bounded/n2", -1);
        List<ZooKeeper> sessions = new ArrayList<>(List.of(client));
        while (sessions.size() < SESSIONS) {
            ZooKeeper more = connect(server, 0, null);
            sessions.add(more);
            for (int i = 0; i < 5; i++) {
                more.create("/locks/member-", bytes("" + i), OPEN, CreateMode.EPHEMERAL_SEQUENTIAL);
            }
        }
        Semaphore inFlight = new Semaphore(IN_FLIGHT);
        // Every fiftieth goes again.
        for (int i = 0; i < many + many / 49; i++) {
            String folder = "/many-" + i / 1000;
            if (i % 1000 == 0) {
                client.create(folder, null, OPEN, CreateMode.PERSISTENT);
            }
            inFlight.acquire();
            client.create(folder + "/node-" + i, bytes(("value " + i + " ").repeat(1 + i % 10)), acl(i), CreateMode.PERSISTENT,
                (code, path, context, name) -> inFlight.release(), null);
            if (i % 7 == 6) {
                inFlight.acquire();
                client.setData(folder + "/node-" + (i - 3), bytes("written again " + i), -1,
                    (code, path, context, stat) -> inFlight.release(), null);
            }
            if (i % 50 == 49) {
                inFlight.acquire();
                client.delete(folder + "/node-" + (i - 20), -1, (code, path, context) -> inFlight.release(), null);
            }
        }
        inFlight.acquire(IN_FLIGHT);
        for (ZooKeeper session : sessions) {
            System.out.println("session " + Long.toHexString(session.getSessionId()) + ":"
                + HexFormat.of().formatHex(session.getSessionPasswd()));
        }
        dump(client);
    }

    /** Every tenth has an ACL of its own, one of a few. */
    private static List<ACL> acl(int i) {
        return i % 10 != 0 ? OPEN : Arrays.asList(new ACL(Perms.ALL, Ids.ANYONE_ID_UNSAFE),
            new ACL(Perms.READ, new Id("digest", "user" + i / 10 % ACLS + ":bm90aGluZw==")));
    }

    private static void dump(ZooKeeper client) throws Exception {
        List<String> pending = new ArrayList<>(List.of("/"));
        var out = new java.io.PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false, StandardCharsets.UTF_8);
        while (!pending.isEmpty()) {
            String path = pending.remove(pending.size() - 1);
            Stat stat = new Stat();
            byte[] data = client.getData(path, false, stat);
            out.println(line(path, data, stat, client.getACL(path, new Stat())));
            List<String> children = client.getChildren(path, false);
            if (path.startsWith("/many-")) {
                out.println(path + "/* " + hash(client, path, children));
                continue;
            }
            Collections.sort(children, Collections.reverseOrder());
            for (String child : children) {
                pending.add((path.equals("/") ? "" : path) + "/" + child);
            }
        }
        out.flush();
    }

    private static String line(String path, byte[] data, Stat stat, List<ACL> acl) {
        String shown = data == null ? "null" : data.length > 1000 ? "hash " + Arrays.hashCode(data) : HexFormat.of().formatHex(data);
        return path + " " + shown + " czxid=" + stat.getCzxid()
            + " mzxid=" + stat.getMzxid() + " pzxid=" + stat.getPzxid() + " ctime=" + stat.getCtime() + " mtime=" + stat.getMtime()
            + " version=" + stat.getVersion() + " cversion=" + stat.getCversion() + " aversion=" + stat.getAversion()
            + " owner=" + Long.toHexString(stat.getEphemeralOwner()) + " length=" + stat.getDataLength()
            + " children=" + stat.getNumChildren() + " acl=" + acl.toString().replaceAll("\\s", "");
    }

    /** The hash of the lines of a znode's children, which are asked for all at once. */
    private static String hash(ZooKeeper client, String parent, List<String> names) throws Exception {
        Collections.sort(names);
        String[] lines = new String[names.size()];
        CountDownLatch asked = new CountDownLatch(names.size());
        for (int i = 0; i < names.size(); i++) {
            int at = i;
            String path = parent + "/" + names.get(i);
            client.getData(path, false, (code, same, context, data, stat) ->
                client.getACL(path, new Stat(), (code2, same2, context2, acl, stat2) -> {
                    lines[at] = code == 0 && code2 == 0 ? line(path, data, stat, acl) : path + " failed " + code + " " + code2;
                    asked.countDown();
                }, null), null);
        }
        asked.await();
        MessageDigest hash = MessageDigest.getInstance("SHA-256");
        for (String line : lines) {
            hash.update(bytes(line + "\n"));
        }
        return names.size() + " children, " + HexFormat.of().formatHex(hash.digest());
    }

    /** Goes on with all the sessions, then prints what is there, whose the ephemerals are, and the next sequential name. */
    private static void attach(String server, List<String> sessions) throws Exception {
        List<ZooKeeper> clients = new ArrayList<>();
        for (String session : sessions) {
            int colon = session.indexOf(':');
            long id = Long.parseUnsignedLong(session.substring(0, colon), 16);
            ZooKeeper client = connect(server, id, HexFormat.of().parseHex(session.substring(colon + 1)));
            if (client.getSessionId() != id) {
                throw new IllegalStateException("another session");
            }
            clients.add(client);
        }
        dump(clients.get(0));
        for (ZooKeeper client : clients) {
            // Only the owner's session shows them here.
            List<String> mine = client.getEphemerals();
            Collections.sort(mine);
            System.out.println(Long.toHexString(client.getSessionId()) + " owns " + mine);
        }
        System.out.println("next " + clients.get(0).create("/jobs/job-", null, OPEN, CreateMode.PERSISTENT_SEQUENTIAL));
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
