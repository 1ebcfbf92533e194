package io.github.batonlocks;

import io.github.batonlocks.BatonException.Lost;
import io.github.batonlocks.BatonException.NotAcquired;
import io.github.batonlocks.BatonException.Refused;
import io.github.batonlocks.BatonException.Unavailable;
import io.github.batonlocks.BatonException.Unknown;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;

/** Connections that are used again, and the release by the end of a request's body. */
public final class ConnectionTest {
    private static final String HELD = ScriptedAgent.HEAD
            + ScriptedAgent.line(Map.of("event", "held", "guard", "g", "token", 1));
    private static final String RELEASED = ScriptedAgent.line(Map.of("event", "released"))
            + ScriptedAgent.END;

    private ConnectionTest() {}

    /** Agent that grants each lock, and answers other requests with an empty object. */
    private static ScriptedAgent granting(String... atEnd) throws Exception {
        return new ScriptedAgent(true, (url, send) -> {
            if (url.equals(ScriptedAgent.END)) {
                for (String text : atEnd) {
                    send.send(text);
                }
            } else {
                send.send(url.startsWith("/v1/lock") ? HELD : ScriptedAgent.whole(Map.of(), "200 OK"));
            }
        });
    }

    private static void connections(ScriptedAgent scripted, int expected) {
        Check.equal(scripted.connections.size(), expected);
    }

    public static void locksAndOtherRequestsOneAfterTheOtherUseOneConnection() throws Exception {
        var scripted = granting(RELEASED);
        var agent = new Agent(scripted.socket);
        for (int count = 0; count < 3; count++) {
            agent.lock("/a").acquire().close();
            agent.health();
        }
        connections(scripted, 1);
    }

    public static void guardsThatAreHeldAtATimeHaveAConnectionEach() throws Exception {
        var scripted = granting(RELEASED);
        var agent = new Agent(scripted.socket);
        for (int turn = 0; turn < 2; turn++) {
            var guards = new ArrayList<Guard>();
            for (int count = 0; count < 3; count++) {
                guards.add(agent.lock("/a").acquire());
            }
            connections(scripted, 3);
            guards.forEach(Guard::release);
        }
    }

    public static void aConnectionThatTheAgentHasClosedIsNotUsedAgain() throws Exception {
        var scripted = granting(RELEASED, null);
        var agent = new Agent(scripted.socket);
        agent.lock("/a").acquire().close();
        Check.result(scripted.connections.get(0));
        agent.lock("/a").acquire().close();
        Check.result(scripted.connections.get(1));
        agent.counter("/a").add(1);
        connections(scripted, 3);
    }

    public static void aConnectionWithMoreThanItsAnswerIsNotUsedAgain() throws Exception {
        for (String more : List.of("x", RELEASED, ScriptedAgent.whole(Map.of(), "200 OK"))) {
            var scripted = granting(RELEASED + more);
            var agent = new Agent(scripted.socket);
            agent.lock("/a").acquire().close();
            agent.lock("/a").acquire();
            connections(scripted, 2);
        }
    }

    public static void aConnectionThatTheAgentSaysItClosesIsNotUsedAgain() throws Exception {
        String whole = ScriptedAgent.whole(Map.of(), "200 OK\r\nConnection: close");
        var scripted = new ScriptedAgent(true, (url, send) -> send.send(whole));
        var agent = new Agent(scripted.socket);
        agent.health();
        agent.health();
        connections(scripted, 2);
    }

    public static void aRefusedRequestEndsItsBodyAndLeavesTheConnectionFree() throws Exception {
        var urls = new CopyOnWriteArrayList<String>();
        String taken = ScriptedAgent.whole(Map.of("code", "not_acquired"), "409 Conflict");
        var scripted = new ScriptedAgent(true, (url, send) -> {
            urls.add(url);
            send.send(url.equals(ScriptedAgent.END) ? "" : taken);
        });
        var agent = new Agent(scripted.socket);
        for (int count = 0; count < 2; count++) {
            Check.fails(NotAcquired.class, () -> agent.lock("/a").acquire());
        }
        connections(scripted, 1);
        Check.equal(List.copyOf(urls).subList(0, 3), List.of("/v1/lock/a", ScriptedAgent.END, "/v1/lock/a"));
    }

    public static void anAgentOfTheVersionBeforeIsNamedAsSuch() throws Exception {
        String answer = ScriptedAgent.whole(Map.of("code", "refused"), "405 Method Not Allowed");
        var agent = new Agent(new ScriptedAgent(true, (url, send) -> send.send(answer)).socket);
        var error = Check.fails(Refused.class, () -> agent.lock("/a").acquire());
        Check.isTrue(error.getMessage().contains("older than this client"), error);
    }

    public static void aReleaseThatIsNotAnsweredIsUnknownAndOneOfALostLockIsLost() throws Exception {
        var answers = Map.of("", Unknown.class, ScriptedAgent.END, Unknown.class,
                ScriptedAgent.line(Map.of("event", "release_requested")), Unknown.class,
                ScriptedAgent.line(Map.of("event", "unknown")), Unknown.class,
                ScriptedAgent.line(Map.of("event", "lost")), Lost.class,
                ScriptedAgent.line(Map.of("event", "error")), Refused.class);
        for (var answer : answers.entrySet()) {
            Guard guard = new Agent(granting(answer.getKey(), null).socket).lock("/a").acquire();
            Check.fails(answer.getValue(), guard::release);
            Check.isTrue(!guard.lost().isDone(), "a release is no loss");
            guard.release();
        }
    }

    public static void anAnswerIsTheSameWhereverItIsCut() throws Exception {
        String text = ScriptedAgent.line(Map.of("event", "release_requested")) + RELEASED;
        var scripted = granting(text.split(""));
        Guard guard = new Agent(scripted.socket).lock("/a").acquire();
        guard.release();
        Check.isTrue(guard.releaseRequested(), "the event before the last one");
    }

    public static void whatIsHeldForLongerIsWatchedAndReleasedAsWell() throws Exception {
        var senders = new CopyOnWriteArrayList<ScriptedAgent.Sender>();
        var scripted = new ScriptedAgent(true, (url, send) -> {
            senders.add(send);
            send.send(url.equals(ScriptedAgent.END) ? RELEASED : HELD);
        });
        var guards = new ArrayList<Guard>();
        for (int count = 0; count < 10; count++) {
            guards.add(new Agent(scripted.socket).lock("/a").acquire());
            for (char part : ScriptedAgent.line(Map.of("event", "release_requested")).toCharArray()) {
                senders.get(count).send(String.valueOf(part));
            }
        }
        for (Guard guard : guards) {
            while (!guard.releaseRequested()) {
                Thread.sleep(1);
            }
        }
        senders.get(0).send(ScriptedAgent.line(Map.of("event", "lost", "reason", "r")));
        senders.get(1).send(null);
        senders.get(2).send("garbage\r\n");
        Check.equal(guards.get(0).lost().get(60, TimeUnit.SECONDS).reason(), "r");
        guards.get(1).lost().get(60, TimeUnit.SECONDS);
        guards.get(2).lost().get(60, TimeUnit.SECONDS);
        guards.subList(0, 3).forEach(it -> Check.fails(Lost.class, it::release));
        guards.subList(3, 10).forEach(Guard::release);
        // Also a connection that was watched is used again, and watched again.
        senders.clear();
        Guard again = new Agent(scripted.socket).lock("/a").acquire();
        senders.get(0).send(ScriptedAgent.line(Map.of("event", "lost", "reason", "again")));
        Check.equal(again.lost().get(60, TimeUnit.SECONDS).reason(), "again");
        connections(scripted, 10);
    }

    public static void aWaitThatIsTooLongEnds() throws Exception {
        var agent = new Agent(new ScriptedAgent(true, (url, send) -> { }).socket);
        var call = new Link.Call("GET", "/v1/health", Duration.ofMillis(1), Map.of());
        var endless = new Link.Call("GET", "/v1/health", Link.NO_LIMIT, Map.of());
        var waits = Check.start(() -> agent.ask(endless));
        var ends = Check.start(() -> Check.fails(Unavailable.class, () -> agent.ask(call)));
        Check.start(() -> {
            while (!ends.isDone()) {
                Watcher.closeLate();
            }
            return null;
        });
        Check.isTrue(Check.result(ends).reason().contains("it took too long"), "it names the limit");
        Check.isTrue(!waits.isDone(), "it has no limit");
    }

    public static void anAnswerThatEndsWithoutAGrantIsUnavailable() throws Exception {
        var scripted = new ScriptedAgent(true, (url, send) ->
                send.send(ScriptedAgent.HEAD + ScriptedAgent.END));
        Check.fails(Unavailable.class, () -> new Agent(scripted.socket).lock("/a").acquire());
    }
}
