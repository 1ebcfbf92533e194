package io.github.batonlocks;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** Carries out the commands of the conformance suite with the client for Java. */
final class Program {
    private static final Map<String, Held> HELD = new ConcurrentHashMap<>();
    private static Agent agent;

    private final Map<String, Object> command;
    private final String id;
    private final String path;

    private Program(String line) {
        command = Json.read(line);
        id = text("id");
        path = text("path");
    }

    private String text(String field) {
        return Json.text(command, field);
    }

    private long number(String field) {
        return Json.number(command, field);
    }

    private Duration time(String field) {
        return command.containsKey(field) ? Duration.ofMillis(number(field)) : null;
    }

    private byte[] data() {
        return text("data").getBytes(StandardCharsets.UTF_8);
    }

    private void say(String event, Map<String, Object> fields) {
        var all = new HashMap<>(fields);
        all.put("event", event);
        all.put("id", id);
        synchronized (Program.class) {
            System.out.println(Json.write(all));
        }
    }

    private void keep(Held found, Map<String, Object> fields) {
        HELD.put(id, found);
        say("held", fields);
        found.lost().thenAccept(lost -> say("lost", Map.of()));
    }

    private Acquisition<Guard> lock() {
        var lock = agent.lock(path);
        if (command.containsKey("mode")) {
            lock.with("mode", text("mode"));
        }
        if (command.containsKey("slots")) {
            lock.slots((int) number("slots"));
        }
        if (command.containsKey("name")) {
            lock.name(text("name"));
        }
        return lock.sessionTimeout(time("timeout"))
                .onWait(position -> say("waiting", Map.of("place", position.place())));
    }

    private Guard guard() {
        return (Guard) HELD.get(id);
    }

    private void cycle() throws Exception {
        Path log = Path.of(text("log"));
        for (long count = 0; count < number("count"); count++) {
            try (Guard guard = agent.lock(path).acquire()) {
                String line = "begin java " + guard.token() + "\n";
                Files.writeString(log, line, StandardOpenOption.APPEND);
                guard.check();
                Files.writeString(log, line.replace("begin", "end"), StandardOpenOption.APPEND);
            }
        }
    }

    /** Returns the nanoseconds of each lock and its release. */
    private List<Object> turns() throws Exception {
        var times = new ArrayList<>();
        for (long count = 0; count < number("count"); count++) {
            long begin = System.nanoTime();
            agent.lock(path).acquire().release();
            times.add(System.nanoTime() - begin);
        }
        return times;
    }

    /** Returns the nanoseconds of one check. */
    private double checks() {
        Guard guard = guard();
        long begin = System.nanoTime();
        for (long count = 0; count < number("count"); count++) {
            guard.check();
        }
        return (System.nanoTime() - begin) / (double) number("count");
    }

    /** Adds its token and an instant at which the lock was held still. */
    private void act() throws Exception {
        try (var file = Files.newOutputStream(Path.of(text("log")), StandardOpenOption.APPEND)) {
            while (true) {
                long now = System.nanoTime();
                if (!guard().isHeld()) {
                    return;
                }
                String line = "java " + guard().token() + " " + now + "\n";
                file.write(line.getBytes(StandardCharsets.UTF_8));
                Thread.sleep(5);
            }
        }
    }

    private void carryOut() throws Exception {
        Object result = null;
        switch (text("do")) {
            case "lock", "elect" -> {
                var acquisition = text("do").equals("lock") ? lock() : agent.elect(path);
                Guard guard = acquisition.acquire(time("wait"));
                keep(guard, Map.of("guard", guard.id(), "token", guard.token(), "term", guard.term()));
                return;
            }
            case "take" -> {
                Item item = agent.queue(path).take().acquire(time("wait"));
                var data = new String(item.data(), StandardCharsets.UTF_8);
                keep(item, Map.of("data", data, "attempt", item.attempt()));
                return;
            }
            case "join" -> {
                keep(agent.join(path, text("name")).acquire(), Map.of());
                return;
            }
            case "check" -> {
                say("check", Map.of("held", HELD.get(id).isHeld()));
                return;
            }
            case "release" -> guard().release();
            case "leave" -> HELD.get(id).close();
            case "create" -> guard().txn(Guard.Write.create(path, data()));
            case "ack" -> ((Item) HELD.get(id)).ack();
            case "nack" -> ((Item) HELD.get(id)).nack("again", null);
            case "put" -> agent.queue(path).put(data());
            case "add" -> result = agent.counter(path).add(number("delta"));
            case "hold" -> result = agent.hold(path, time("ttl"), null, null);
            case "release_hold" -> agent.releaseHold(path, number("token"));
            case "current" -> result = agent.tokenIsCurrent(path, number("token"));
            case "members" -> {
                try (var members = agent.members(path)) {
                    result = members.next().stream().map(Agent.Member::id).sorted().toList();
                }
            }
            case "cycle" -> cycle();
            case "turns" -> result = turns();
            case "checks" -> result = checks();
            case "act" -> act();
            case "many" -> {
                for (long count = 0; count < number("count"); count++) {
                    HELD.put(id + count, agent.lock(path + "/" + count).acquire());
                }
            }
            default -> throw new IllegalArgumentException(text("do"));
        }
        var fields = new HashMap<String, Object>();
        fields.put("result", result);
        say("done", fields);
    }

    private void run() {
        try {
            carryOut();
        } catch (BatonException error) {
            var fields = new HashMap<String, Object>();
            fields.put("kind", error.getClass().getSimpleName());
            fields.put("text", error.toString());
            fields.put("held_by", error instanceof BatonException.NotAcquired taken
                    ? taken.heldBy().orElse(null) : null);
            say("error", fields);
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    public static void main(String[] arguments) throws Exception {
        agent = new Agent(arguments.length == 0 ? null : Path.of(arguments[0]));
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            var thread = new Thread(new Program(line)::run);
            thread.setDaemon(true);
            thread.start();
        }
    }
}
