import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

/** Holds a lock again and again, and writes a line into a log at the begin and the end of each turn, with its token. */
public final class CuratorTurns extends InterProcessMutex {
    private CuratorTurns(CuratorFramework session, String path) {
        super(session, path);
    }

    public static void main(String[] args) throws Exception {
        if (args.length != 4) {
            System.err.println("usage: CuratorTurns SERVERS PATH COUNT LOG");
            System.exit(2);
        }
        Path log = Path.of(args[3]);
        try (CuratorFramework session = CuratorFrameworkFactory.newClient(args[0], 30_000, 15_000, new RetryOneTime(100))) {
            session.start();
            CuratorTurns lock = new CuratorTurns(session, args[1]);
            for (int turn = 0; turn < Integer.parseInt(args[2]); turn++) {
                lock.acquire();
                // As Baton counts: the change that made the holder's node.
                long token = session.checkExists().forPath(lock.getLockPath()).getCzxid();
                Files.writeString(log, "begin curator " + token + "\n", StandardOpenOption.APPEND);
                Files.writeString(log, "end curator " + token + "\n", StandardOpenOption.APPEND);
                lock.release();
            }
        }
    }
}
