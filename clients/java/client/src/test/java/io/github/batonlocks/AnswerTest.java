package io.github.batonlocks;

import io.github.batonlocks.BatonException.Refused;
import io.github.batonlocks.BatonException.Unavailable;
import io.github.batonlocks.BatonException.Unknown;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Answers that are cut, wrong or missing, and their JSON. */
public final class AnswerTest {
    private AnswerTest() {}

    private static Agent agent(ScriptedAgent.Script script) throws Exception {
        return new Agent(new ScriptedAgent(false, script).socket);
    }

    public static void aTimeIsInWholeMillisecondsAndAShortOneIsNotNone() {
        Check.equal(Agent.milliseconds("wait", null), null);
        Check.equal(Agent.milliseconds("wait", Duration.ZERO), 0L);
        Check.equal(Agent.milliseconds("wait", Duration.ofNanos(1)), 1L);
        Check.equal(Agent.milliseconds("wait", Duration.ofSeconds(30)), 30_000L);
    }

    public static void aChangeWithoutAnAnswerIsUnknownAndAReadIsNot() throws Exception {
        var hits = agent((url, send) -> { }).counter("/hits");
        var error = Check.fails(Unknown.class, () -> hits.add(1));
        Check.equal(error.thing(), "POST /v1/counter/hits/add");
        Check.fails(Unavailable.class, hits::get);
    }

    public static void serversThatDoNotAnswerAreUnavailableSinceTheAgentsTime() throws Exception {
        var agent = agent((url, send) -> {
            boolean isHealth = url.equals("/v1/health");
            var refusal = Map.of("thing", "/a", "cause", "no server", "code", "unavailable");
            send.send(isHealth ? ScriptedAgent.whole(Map.of("unavailable_for_ms", 5000), "200 OK")
                    : ScriptedAgent.whole(refusal, "503 Service Unavailable"));
        });
        Instant before = Instant.now().minusSeconds(5);
        for (Check.Work work : List.<Check.Work>of(() -> agent.lock("/a").acquire(),
                () -> agent.counter("/a").get())) {
            Instant since = Check.fails(Unavailable.class, work).since().orElseThrow();
            Check.isTrue(!since.isBefore(before) && since.isBefore(Instant.now()), since);
        }
    }

    public static void thatWhichIsNoAnswerIsUnavailable() throws Exception {
        String ok = "HTTP/1.1 200 OK\r\n";
        String chunked = ok + "Transfer-Encoding: chunked\r\n\r\n";
        for (String data : List.of("SSH-2.0-OpenSSH\r\n\r\n", "\r\n", ok + "\r\n",
                ok + "no field\r\n\r\n", ok + "Content-Length\r\n\r\n",
                ok + "Content-Length: 1\r\n\r\n{",
                ok + "Content-Length: 2\r\n\r\n[]", ok + "Content-Length: 9\r\n\r\n{}",
                ok + "Content-Length: x\r\n\r\n", ok + "Content-Length: 4\r\n\r\nnull",
                ok + "Content-Length: 2000000\r\n\r\n" + "[".repeat(2_000_000),
                chunked + "x\r\n", "x".repeat(17 << 20),
                chunked + "2000000\r\n\"" + "x".repeat(17 << 20))) {
            var agent = agent((url, send) -> send.send(data));
            Check.fails(Unavailable.class, agent::health);
        }
        var empty = agent((url, send) -> send.send("HTTP/1.1 431 Large\r\nContent-Length: 0\r\n\r\n"));
        Check.fails(Refused.class, empty::health);
    }

    public static void jsonIsReadAsItWasWritten() {
        var value = new HashMap<String, Object>();
        value.put("text", "a\"\\\n\t\u0001ü\uD83D\uDE00/");
        value.put("list", List.of(1L, -2.5, true, List.of(), Map.of()));
        value.put("large", 999_999_999_999_999_999L);
        Check.equal(Json.read(Json.write(value)), value);
        var other = Json.read(" { \"a\" : \"\\u00fc\\/\\b\\f\\r\" , \"b\":[null, false] } ");
        Check.equal(other, Map.of("a", "ü/\b\f\r", "b", Arrays.asList(null, false)));
        value.put("none", null);
        Check.isTrue(!Json.write(value).contains("none"), "fields that are null are left out");
    }

    public static void thatWhichIsNotJsonIsRefused() {
        for (String text : List.of("", "{", "{]", "{\"a\"}", "{\"a\":}", "{\"a\":1", "{\"a\":1,}",
                "{\"a\":1 \"b\":2}", "{a:1}", "{\"a\":01x}", "{} {}", "[]", "1", "\"", "{\"\\u00g0\":1}",
                "{\"\\u0", "{\"a\":[1,]}", "{\"a\":[1 2]}", "{\"a\":nul}")) {
            Check.fails(IllegalArgumentException.class, () -> Json.read(text));
        }
    }
}
