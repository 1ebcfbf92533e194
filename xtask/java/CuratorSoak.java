import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.data.Stat;

/**
 * Curator's recipes under load, all at once, while the driver ({@code xtask/src/interop/soak.rs}) kills servers and cuts
 * connections. Of each recipe's three clients one goes by a way of its own, which may be cut for longer than its session lives.
 *
 * <p>Prints {@code ready}; ends when it reads {@code stop}: then every thread has to have another turn, all values have to be right, and
 * nothing may stay behind. Prints {@code broken RECIPE: WHAT} for what a correct server would not let happen, and a line {@code row} for
 * each recipe.
 */
public final class CuratorSoak {
    private static final String ROOT = "/soak";
    private static final int CLIENTS = 3;
    private static final long PATIENCE_MS = 60_000;
    private static final int HOLD_MS = 3;
    private static final int THINK_MS = 6;
    private static final int MOST_BROKEN_SHOWN = 40;

    /** One thread's work. */
    private interface Step {
        /** Whether it counts. */
        boolean run() throws Exception;
    }

    private static final class Worker {
        final String name;
        final Thread thread;
        final AtomicLong steps = new AtomicLong();

        Worker(Recipe recipe, SoakClient who, int number, Step step) {
            name = recipe.name + " of " + who.name + ", thread " + number;
            thread = new Thread(() -> {
                while (!stopping) {
                    try {
                        steps.addAndGet(step.run() ? 1 : 0);
                    } catch (Exception error) {
                        recipe.judge(who, error);
                        Peer.pause(10);
                    }
                    Peer.pause(random(THINK_MS));
                }
            }, name);
            thread.setDaemon(true);
        }
    }

    /** One line of the table. */
    private static final class Recipe {
        final String name;
        final String path;
        final List<SoakClient> clients = new ArrayList<>();
        final List<Worker> workers = new ArrayList<>();
        final List<SoakValues.Value> values = new ArrayList<>();
        final AtomicLong done = new AtomicLong();
        final AtomicLong unsure = new AtomicLong();
        final AtomicLong errors = new AtomicLong();
        final AtomicLong forgotten = new AtomicLong();
        SoakRegister register;

        Recipe(String name) {
            this.name = name;
            path = ROOT + "/" + name;
        }

        void judge(SoakClient who, Exception error) {
            errors.incrementAndGet();
            if (isForgottenNode(error)) {
                forgotten.incrementAndGet();
                who.endSession();
                return;
            }
            boolean lost = error instanceof KeeperException.SessionExpiredException
                    || error instanceof KeeperException.SessionMovedException
                    || error instanceof KeeperException.NoNodeException;
            boolean expected = error instanceof KeeperException.ConnectionLossException
                    || error instanceof KeeperException.OperationTimeoutException
                    || lost && who.mayLoseSession;
            if (!expected) {
                broken(name, who.name + ": " + error);
                error.printStackTrace();
            }
        }

        String row() {
            long steps = workers.stream().mapToLong(worker -> worker.steps.get()).sum();
            long lost = clients.stream().filter(who -> {
                try {
                    return who.lostSession();
                } catch (Exception closed) {
                    return true;
                }
            }).count();
            return String.join("|", "row", name, Long.toString(steps),
                    register == null ? "" : Integer.toString(register.handOvers),
                    register == null ? "" : Integer.toString(register.stale),
                    Long.toString(clients.stream().mapToLong(who -> who.suspended.get()).sum()), Long.toString(lost),
                    Long.toString(errors.get()), Long.toString(forgotten.get()));
        }
    }

    /**
     * Whether Curator has lost the name of a node that it has created: a nested look, which shares its loop of attempts, marks the
     * loop as complete, so that a second loss of the connection ends it with neither a result nor an error. The node may stand, and
     * then nobody gets past it while its session lives.
     */
    private static boolean isForgottenNode(Exception error) {
        return error instanceof IllegalArgumentException && "Path cannot be null".equals(error.getMessage());
    }

    private static volatile boolean stopping;
    private static int shown;

    static synchronized void broken(String recipe, String what) {
        if (shown++ < MOST_BROKEN_SHOWN) {
            print("broken " + recipe + ": " + what.replace('\n', ' '));
        }
    }

    private static synchronized void print(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static int random(int most) {
        return java.util.concurrent.ThreadLocalRandom.current().nextInt(most + 1);
    }

    public static void main(String[] args) throws Exception {
        if (args.length != 5) {
            System.err.println("usage: CuratorSoak SERVERS SERVERS_OF_CUT_OFF SERVERS_DIRECT TIMEOUT_MS RECIPE_CONTAINS");
            System.exit(2);
        }
        int timeout = Integer.parseInt(args[3]);
        SoakClient judge = new SoakClient("judge", args[2], timeout, false);
        List<Recipe> recipes = new ArrayList<>();
        for (String name : List.of("InterProcessMutex", "InterProcessReadWriteLock", "InterProcessSemaphoreV2", "LeaderLatch",
                "LeaderSelector", "DistributedAtomicLong", "SharedCount", "PersistentNode", "CuratorCache", "TreeCache",
                "PathChildrenCache")) {
            if (name.contains(args[4])) {
                Recipe recipe = new Recipe(name);
                judge.session.create().creatingParentsIfNeeded().forPath(recipe.path + "-value", "0".getBytes());
                for (int number = 0; number < CLIENTS; number++) {
                    boolean cutOff = number == CLIENTS - 1;
                    recipe.clients.add(new SoakClient("client " + number, args[cutOff ? 1 : 0], timeout, cutOff));
                }
                staff(recipe, judge);
                recipes.add(recipe);
            }
        }
        recipes.forEach(recipe -> recipe.workers.forEach(worker -> worker.thread.start()));
        print("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line = lines.readLine();
        if (line == null) {
            Runtime.getRuntime().halt(1);
        }
        end(recipes, judge);
        print("ended");
        Runtime.getRuntime().halt(0);
    }

    private static void staff(Recipe recipe, SoakClient judge) throws Exception {
        String path = recipe.path;
        for (SoakClient who : recipe.clients) {
            CuratorFramework session = who.session;
            switch (recipe.name) {
                case "InterProcessMutex":
                    InterProcessMutex shared = new InterProcessMutex(session, path);
                    turns(recipe, who, judge, 1, 1, SoakTurns.mutex(shared));
                    turns(recipe, who, judge, 1, 1, SoakTurns.mutex(shared));
                    break;
                case "InterProcessReadWriteLock":
                    turns(recipe, who, judge, 100, 1, SoakTurns.read(session, path));
                    turns(recipe, who, judge, 100, 100, SoakTurns.write(session, path));
                    break;
                case "InterProcessSemaphoreV2":
                    turns(recipe, who, judge, 2, 1, SoakTurns.permit(session, path, 2));
                    break;
                case "LeaderLatch":
                    turns(recipe, who, judge, 1, 1, new SoakTurns.Latch(session, path, register(recipe, judge, 1)));
                    break;
                case "LeaderSelector":
                    turns(recipe, who, judge, 1, 1, new SoakTurns.Selector(session, path, register(recipe, judge, 1)));
                    break;
                case "DistributedAtomicLong":
                    values(recipe, who, SoakValues.atomic(session, path));
                    break;
                case "SharedCount":
                    values(recipe, who, SoakValues.shared(session, path));
                    break;
                case "PersistentNode":
                    values(recipe, who, SoakValues.persistent(who, judge, path + "-" + who.name.replace(' ', '-')));
                    break;
                default:
                    // A session of its own for each: on one, ZooKeeper takes a one-shot watch for the end of a persistent one.
                    values(recipe, who, SoakValues.cache(recipe.name, session, path, recipe.clients.indexOf(who)));
            }
        }
    }

    private static SoakRegister register(Recipe recipe, SoakClient judge, int capacity) {
        if (recipe.register == null) {
            recipe.register = new SoakRegister(recipe.name, capacity, judge);
        }
        return recipe.register;
    }

    private static void turns(Recipe recipe, SoakClient who, SoakClient judge, int capacity, int weight, SoakTurns.Turn turn) {
        SoakRegister register = register(recipe, judge, capacity);
        boolean alone = weight == capacity;
        recipe.workers.add(new Worker(recipe, who, recipe.workers.size(), () -> {
            if (!turn.acquire()) {
                return false;
            }
            try {
                if (!register.enter(who, turn, weight)) {
                    return false;
                }
                if (alone) {
                    count(recipe, who, turn.node());
                }
                Peer.pause(random(HOLD_MS));
                return true;
            } finally {
                register.leave(turn);
                turn.release();
            }
        }));
    }

    /** Adds one to a value that only the lock protects, and only while the turn's own znode stands. */
    private static void count(Recipe recipe, SoakClient who, String node) throws Exception {
        if (node == null) {
            return;
        }
        String path = recipe.path + "-value";
        long value = number(who, path);
        recipe.unsure.incrementAndGet();
        try {
            byte[] next = Long.toString(value + 1).getBytes(StandardCharsets.UTF_8);
            who.session.transaction().forOperations(
                    who.session.transactionOp().check().forPath(node), who.session.transactionOp().setData().forPath(path, next));
            recipe.done.incrementAndGet();
        } catch (KeeperException.NoNodeException lost) {
            // Not written: an election that the library gave up, or a session that was lost.
        }
        recipe.unsure.decrementAndGet();
    }

    private static long number(SoakClient who, String path) throws Exception {
        return Long.parseLong(new String(who.session.getData().forPath(path), StandardCharsets.UTF_8));
    }

    private static void values(Recipe recipe, SoakClient who, SoakValues.Value value) {
        recipe.values.add(value);
        recipe.workers.add(new Worker(recipe, who, recipe.workers.size(), () -> {
            boolean counts = value.step();
            recipe.done.addAndGet(counts ? 1 : 0);
            return counts;
        }));
    }

    private static void end(List<Recipe> recipes, SoakClient judge) throws Exception {
        List<Worker> workers = recipes.stream().flatMap(recipe -> recipe.workers.stream()).collect(Collectors.toList());
        List<Long> before = workers.stream().map(worker -> worker.steps.get()).collect(Collectors.toList());
        List<Worker> waiting = new ArrayList<>(workers);
        await(() -> {
            waiting.removeIf(worker -> worker.steps.get() > before.get(workers.indexOf(worker)));
            return waiting.isEmpty();
        });
        waiting.forEach(worker -> stuck("no turn after the disturbances", worker));
        stopping = true;
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(PATIENCE_MS);
        for (Worker worker : workers) {
            worker.thread.join(Math.max(1, TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime())));
            if (worker.thread.isAlive()) {
                stuck("does not end", worker);
            }
        }
        for (Recipe recipe : recipes) {
            judgeAtTheEnd(recipe, judge);
            print(recipe.row());
            for (SoakValues.Value value : recipe.values) {
                value.close();
            }
            recipe.clients.forEach(who -> who.session.close());
        }
        List<String> left = new ArrayList<>();
        await(() -> {
            left.clear();
            ephemerals(judge.session, ROOT, left);
            return left.isEmpty();
        });
        left.forEach(node -> broken(node.split("/")[2], node + " stays behind when all sessions are closed"));
    }

    private static void stuck(String what, Worker worker) {
        StringBuilder where = new StringBuilder();
        for (StackTraceElement element : worker.thread.getStackTrace()) {
            where.append("\n    ").append(element);
        }
        System.err.println(worker.name + " " + what + where);
        broken(worker.name.split(" ")[0], worker.name + ": " + what);
    }

    private static void judgeAtTheEnd(Recipe recipe, SoakClient judge) throws Exception {
        for (SoakClient who : recipe.clients) {
            if (who.lostSession() && !who.mayLoseSession) {
                broken(recipe.name, who.name + " lost its session");
            }
        }
        for (SoakValues.Value value : recipe.values) {
            String[] fault = new String[1];
            await(() -> {
                fault[0] = value.fault(judge, recipe.done.get());
                return fault[0] == null;
            });
            if (fault[0] != null) {
                broken(recipe.name, recipe.clients.get(recipe.values.indexOf(value)).name + " " + fault[0]);
            }
        }
        judge.newest(recipe.path + "-value");
        long counted = number(judge, recipe.path + "-value");
        long done = recipe.register == null ? 0 : recipe.done.get();
        if (counted < done || counted > done + recipe.unsure.get()) {
            broken(recipe.name, "the value that it protects is " + counted + " after " + done + " increments and "
                    + recipe.unsure.get() + " unknown ones");
        }
    }

    private static void await(Callable<Boolean> done) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(PATIENCE_MS);
        while (!done.call() && System.nanoTime() < deadline) {
            Peer.pause(50);
        }
    }

    private static void ephemerals(CuratorFramework session, String node, List<String> found) throws Exception {
        Stat stat = session.checkExists().forPath(node);
        if (stat == null) {
            return;
        }
        if (stat.getEphemeralOwner() != 0) {
            found.add(node);
            return;
        }
        try {
            for (String child : session.getChildren().forPath(node)) {
                ephemerals(session, node + "/" + child, found);
            }
        } catch (KeeperException.NoNodeException gone) {
            // Between the two reads.
        }
    }
}
