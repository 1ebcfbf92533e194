import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Waits for a lock with Curator's InterProcessMutex, again and again, and notes each turn in a register that the other
 * processes share.
 *
 * <p>The register is a folder: a holder makes the file {@code holder} and must be the first to do so, appends its name to
 * {@code turns}, and removes {@code holder}. A file {@code holder} that is already there is an overlap, noted in
 * {@code overlaps}. Ends when the file {@code stop} appears.
 */
public final class CuratorTurns {
    public static void main(String[] args) throws Exception {
        if (args.length != 3) {
            System.err.println("usage: CuratorTurns SERVERS PATH REGISTER");
            System.exit(2);
        }
        Path register = Path.of(args[2]);
        try (CuratorFramework session =
                CuratorFrameworkFactory.newClient(args[0], 30_000, 15_000, new ExponentialBackoffRetry(100, 8))) {
            session.start();
            if (!session.blockUntilConnected(15, TimeUnit.SECONDS)) {
                System.err.println("no server at " + args[0]);
                System.exit(1);
            }
            InterProcessMutex mutex = new InterProcessMutex(session, args[1]);
            while (!Files.exists(register.resolve("stop"))) {
                mutex.acquire();
                try {
                    takeTurn(register);
                } finally {
                    mutex.release();
                }
            }
        }
    }

    private static void takeTurn(Path register) throws Exception {
        Path holder = register.resolve("holder");
        boolean alone = true;
        try {
            Files.write(holder, "curator\n".getBytes(StandardCharsets.UTF_8), StandardOpenOption.CREATE_NEW);
        } catch (FileAlreadyExistsException taken) {
            alone = false;
            append(register.resolve("overlaps"));
        }
        append(register.resolve("turns"));
        Thread.sleep(1);
        if (alone) {
            Files.delete(holder);
        }
    }

    private static void append(Path file) throws Exception {
        Files.write(
                file, "curator\n".getBytes(StandardCharsets.UTF_8), StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }
}
