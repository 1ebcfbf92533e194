import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

/**
 * Measures Curator's InterProcessMutex: cycles of acquire and release a second, over all clients.
 *
 * <p>One client measures the uncontended lock; several contend, and then every grant is a hand-off. Each client has its own
 * session. Prints one JSON object.
 */
public final class CuratorBench {
    private static volatile boolean measuring;
    private static volatile boolean stopped;

    public static void main(String[] args) throws Exception {
        if (args.length != 5) {
            System.err.println("usage: CuratorBench SERVERS PATH CLIENTS WARM_UP_SECONDS SECONDS");
            System.exit(2);
        }
        String servers = args[0];
        String path = args[1];
        int clients = Integer.parseInt(args[2]);
        double warmUp = Double.parseDouble(args[3]);
        double seconds = Double.parseDouble(args[4]);

        AtomicLong cycles = new AtomicLong();
        List<long[]> latencies = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        List<CuratorFramework> sessions = new ArrayList<>();
        for (int i = 0; i < clients; i++) {
            CuratorFramework session = CuratorFrameworkFactory.newClient(servers, 30_000, 15_000, new RetryOneTime(100));
            session.start();
            if (!session.blockUntilConnected(15, TimeUnit.SECONDS)) {
                System.err.println("no server at " + servers);
                System.exit(1);
            }
            sessions.add(session);
            threads.add(new Thread(() -> contend(session, path, cycles, latencies)));
        }
        threads.forEach(Thread::start);
        Thread.sleep((long) (warmUp * 1000));
        long begin = System.nanoTime();
        measuring = true;
        Thread.sleep((long) (seconds * 1000));
        measuring = false;
        double window = (System.nanoTime() - begin) / 1e9;
        long measured = cycles.get();
        stopped = true;
        for (Thread thread : threads) {
            thread.join();
        }
        sessions.get(0).delete().guaranteed().deletingChildrenIfNeeded().forPath(path);
        sessions.forEach(CuratorFramework::close);

        long[] all = latencies.stream().flatMapToLong(Arrays::stream).sorted().toArray();
        System.out.printf(
                "{\"clients\":%d,\"seconds\":%.3f,\"ops\":%d,\"ops_per_second\":%.1f,\"p50_us\":%.1f,\"p99_us\":%.1f}%n",
                clients, window, measured, measured / window, quantile(all, 0.5), quantile(all, 0.99));
    }

    private static void contend(CuratorFramework session, String path, AtomicLong cycles, List<long[]> latencies) {
        InterProcessMutex mutex = new InterProcessMutex(session, path);
        List<Long> mine = new ArrayList<>();
        try {
            while (!stopped) {
                long begin = System.nanoTime();
                mutex.acquire();
                mutex.release();
                if (measuring) {
                    cycles.incrementAndGet();
                    mine.add(System.nanoTime() - begin);
                }
            }
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1);
        }
        synchronized (latencies) {
            latencies.add(mine.stream().mapToLong(Long::longValue).toArray());
        }
    }

    private static double quantile(long[] sorted, double at) {
        return sorted.length == 0 ? 0 : sorted[(int) Math.min(sorted.length - 1L, (long) (sorted.length * at))] / 1e3;
    }
}
