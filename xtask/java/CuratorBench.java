import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.retry.RetryOneTime;

/**
 * Measures a recipe of Curator: cycles a second, over all clients.
 *
 * <p>A cycle acquires and releases an InterProcessMutex, which one client measures uncontended; several contend, and then
 * every grant is a hand-off. With {@code election} it is a turn of a LeaderSelector that resigns at once, and takes from the
 * resignation before it; with {@code queue}, an offer to a SimpleDistributedQueue and a take. Each client has its own session.
 * Prints one JSON object.
 */
public final class CuratorBench {
    private static final Queue<Long> LATENCIES = new ConcurrentLinkedQueue<>();
    private static volatile long resigned = System.nanoTime();
    private static volatile boolean measuring;
    private static volatile boolean stopped;

    private interface Cycle {
        void run() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        if (args.length < 5) {
            System.err.println("usage: CuratorBench SERVERS PATH CLIENTS WARM_UP_SECONDS SECONDS [RECIPE]");
            System.exit(2);
        }
        String servers = args[0];
        String path = args[1];
        int clients = Integer.parseInt(args[2]);
        double warmUp = Double.parseDouble(args[3]);
        double seconds = Double.parseDouble(args[4]);
        String recipe = args.length > 5 ? args[5] : "lock";

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
            threads.add(new Thread(() -> repeat(session, recipe, path)));
        }
        threads.forEach(Thread::start);
        Thread.sleep((long) (warmUp * 1000));
        long begin = System.nanoTime();
        measuring = true;
        Thread.sleep((long) (seconds * 1000));
        measuring = false;
        double window = (System.nanoTime() - begin) / 1e9;
        long[] all = LATENCIES.stream().mapToLong(Long::longValue).sorted().toArray();
        stopped = true;
        for (Thread thread : threads) {
            thread.join();
        }
        sessions.get(0).delete().guaranteed().deletingChildrenIfNeeded().forPath(path);
        sessions.forEach(CuratorFramework::close);

        System.out.printf(
                "{\"clients\":%d,\"seconds\":%.3f,\"ops\":%d,\"ops_per_second\":%.1f,\"p50_us\":%.1f,\"p99_us\":%.1f}%n",
                clients, window, all.length, all.length / window, quantile(all, 0.5), quantile(all, 0.99));
    }

    private static void count(long begin) {
        if (measuring) {
            LATENCIES.add(System.nanoTime() - begin);
        }
    }

    private static void repeat(CuratorFramework session, String recipe, String path) {
        try {
            if (recipe.equals("election")) {
                elect(session, path);
                return;
            }
            Cycle cycle = cycle(session, recipe, path);
            while (!stopped) {
                long begin = System.nanoTime();
                cycle.run();
                count(begin);
            }
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    private static Cycle cycle(CuratorFramework session, String recipe, String path) {
        if (recipe.equals("queue")) {
            SimpleDistributedQueue queue = new SimpleDistributedQueue(session, path);
            byte[] item = new byte[100];
            return () -> {
                queue.offer(item);
                queue.take();
            };
        }
        InterProcessMutex mutex = new InterProcessMutex(session, path);
        return () -> {
            mutex.acquire();
            mutex.release();
        };
    }

    private static void elect(CuratorFramework session, String path) throws Exception {
        LeaderSelector selector = new LeaderSelector(session, path, new LeaderSelectorListenerAdapter() {
            @Override
            public void takeLeadership(CuratorFramework client) throws Exception {
                count(resigned);
                resigned = System.nanoTime();
            }
        });
        selector.autoRequeue();
        selector.start();
        while (!stopped) {
            Thread.sleep(10);
        }
        selector.close();
    }

    private static double quantile(long[] sorted, double at) {
        return sorted.length == 0 ? 0 : sorted[(int) Math.min(sorted.length - 1L, (long) (sorted.length * at))] / 1e3;
    }
}
