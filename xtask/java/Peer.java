import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Random;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/**
 * One process of another library, which reads commands on standard input and reporting on standard output: see
 * {@code xtask/src/peer/mod.rs} for the lines. Knows no recipe itself: those are in {@link CuratorRecipes} and
 * {@link ZooKeeperRecipes}.
 *
 * <p>Every line it prints has the instant of CLOCK_MONOTONIC at which it was true, so that lines of several processes on one
 * machine can be compared. Ends at once when its standard input does.
 */
public final class Peer {
    /** Something that is held by a limited number at a time. */
    interface Turn {
        void acquire() throws Exception;

        void release() throws Exception;

        /** What the library itself says. */
        boolean held();
    }

    /** Something that hands items on. */
    interface Items {
        void put(String item) throws Exception;

        /** An item, or null if there was none within the time. */
        String take(long millis) throws Exception;
    }

    /** Everything else: a command and its arguments, and what came of it. */
    interface Other {
        String run(String command, String argument) throws Exception;
    }

    /** A session, and whether its holder was notified that something is wrong with it. */
    static class Listener {
        volatile boolean notified;

        void report(String what) {
            notified = true;
            say("notified", System.nanoTime(), what);
        }
    }

    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private static final BlockingQueue<String[]> COMMANDS = new LinkedBlockingQueue<>();
    private static volatile boolean stopped;

    static synchronized void say(String event, long nanos, Object rest) {
        OUT.print(event + " " + nanos + " " + rest + "\n");
        OUT.flush();
    }

    public static void main(String[] args) throws Exception {
        if (args.length != 5) {
            System.err.println("usage: Peer SERVERS RECIPE PATH NAME TIMEOUT_MS");
            System.exit(2);
        }
        Thread reader = new Thread(Peer::read, "commands");
        reader.setDaemon(true);
        reader.start();
        Listener session = new Listener();
        Object recipe = open(args, session);
        say("ready", System.nanoTime(), "");
        while (true) {
            String[] command = COMMANDS.take();
            try {
                obey(command, recipe, session, args);
            } catch (Exception error) {
                say("error", System.nanoTime(), command[0] + ": " + error.toString().replace('\n', ' '));
            }
        }
    }

    private static void read() {
        try (BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                if (line.equals("stop")) {
                    stopped = true;
                } else {
                    COMMANDS.add((line + "   ").split(" ", 4));
                }
            }
        } catch (Exception gone) {
            // As if it had ended.
        }
        Runtime.getRuntime().halt(0);
    }

    private static Object open(String[] args, Listener session) throws Exception {
        int timeout = Integer.parseInt(args[4]);
        return args[1].startsWith("curator-")
                ? CuratorRecipes.open(args[0], args[1], args[2], args[3], timeout, session)
                : ZooKeeperRecipes.open(args[0], args[1], args[2], args[3], timeout, session);
    }

    private static void obey(String[] command, Object recipe, Listener session, String[] args) throws Exception {
        switch (command[0]) {
            case "acquire":
                ((Turn) recipe).acquire();
                say("enter", System.nanoTime(), 0);
                break;
            case "release":
                say("leave", System.nanoTime(), 0);
                ((Turn) recipe).release();
                say("released", System.nanoTime(), 0);
                break;
            case "held":
                say("held", System.nanoTime(), ((Turn) recipe).held());
                break;
            case "act":
                Thread actor = new Thread(() -> act((Turn) recipe, session, command[1], Long.parseLong(command[2])));
                actor.setDaemon(true);
                actor.start();
                break;
            case "loop":
                stopped = false;
                turns((Turn) recipe, 0, Integer.parseInt(command[1]), Integer.parseInt(command[2]));
                say("done", System.nanoTime(), "loop");
                break;
            case "crowd":
                crowd(Integer.parseInt(command[1]), Integer.parseInt(command[2]), Integer.parseInt(command[3].trim()), args);
                break;
            case "put":
                ((Items) recipe).put(command[1]);
                say("put", System.nanoTime(), command[1]);
                break;
            case "drain":
                stopped = false;
                while (!stopped) {
                    String next = ((Items) recipe).take(100);
                    if (next != null) {
                        say("item", System.nanoTime(), next);
                    }
                }
                say("done", System.nanoTime(), "drain");
                break;
            default:
                String result = ((Other) recipe).run(command[0], command[1]);
                say("done", System.nanoTime(), command[0] + " " + result);
        }
    }

    /** Does something every so often while it believes that it may: because nobody notified it otherwise, or because its lock says so. */
    private static void act(Turn turn, Listener session, String belief, long intervalMillis) {
        stopped = false;
        while (!stopped) {
            long now = System.nanoTime();
            if (belief.equals("notified") ? session.notified : !turn.held()) {
                break;
            }
            say("act", now, 0);
            pause(intervalMillis);
        }
        say("done", System.nanoTime(), "act");
    }

    private static void turns(Turn turn, int lane, int holdMillis, int thinkMillis) throws Exception {
        Random random = new Random(lane + ProcessHandle.current().pid());
        while (!stopped) {
            turn.acquire();
            say("enter", System.nanoTime(), lane);
            pause(random.nextInt(holdMillis + 1));
            say("leave", System.nanoTime(), lane);
            turn.release();
            pause(random.nextInt(thinkMillis + 1));
        }
    }

    /** Several members in this process, each with a session of its own. */
    private static void crowd(int size, int holdMillis, int thinkMillis, String[] args) throws Exception {
        stopped = false;
        for (int lane = 0; lane < size; lane++) {
            int number = lane;
            Turn turn = (Turn) open(args, new Listener());
            Thread thread = new Thread(() -> {
                try {
                    turns(turn, number, holdMillis, thinkMillis);
                } catch (Exception error) {
                    say("error", System.nanoTime(), "lane " + number + ": " + error);
                }
            });
            thread.setDaemon(true);
            thread.start();
        }
    }

    static void pause(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
