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
        var times = Json.object("a", Duration.ZERO, "b", Duration.ofNanos(1),
                "c", Duration.ofSeconds(30), "d", null);
        Check.equal(Json.write(times), "{\"a\":0,\"b\":1,\"c\":30000}");
    }

    public static void aChangeWithoutAnAnswerIsUnknownAndAReadIsNot() throws Exception {
        var hits = agent((url, send) -> { }).counter("/hits");
        var error = Check.fails(Unknown.class, () -> hits.add(1));
        Check.equal(error.thing(), "POST /v1/counter/hits/add");
        Check.fails(Unavailable.class, hits::get);
    }

    public static void serversThatDoNotAnswerAreUnavailableSinceTheAgentsTime() throws Exception {
        var agent = agent((url, send) -> {
            var refusal = Map.of("thing", "/a", "code", "unavailable", "unavailable_for_ms", 5000);
            send.send(ScriptedAgent.whole(refusal, "503 Service Unavailable"));
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
        String chunks = ScriptedAgent.HEAD;
        for (String data : List.of("", "\r\n", "SSH-2.0-OpenSSH\r\n\r\n", "HTTP/1.1 x\r\n\r\n{}",
                ok, ok + "\r\n{}", ok + "no field\r\n\r\n", ok + "Content-Length: x\r\n\r\n{}",
                ok + "Content-Length: 0\r\n\r\n", ok + "Content-Length: 1\r\n\r\n{",
                ok + "Content-Length: 2\r\n\r\n[]", ok + "Content-Length: 4\r\n\r\nnull",
                ok + "Content-Length: 9\r\n\r\n{}", chunks, chunks + "x\r\n{}\n", chunks + "-1\r\n",
                chunks + "3\r\n[]\n\r\n", chunks + "3\r\n{\"\n\r\n",
                chunks + "0\r\n\r\n", chunks + "80000000\r\n", "x".repeat(17 << 20),
                ok + "Content-Length: 2000000\r\n\r\n" + "[".repeat(2_000_000),
                chunks + "2000000\r\n\"" + "x".repeat(17 << 20))) {
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
                "{\"a\":1 \"b\":2}", "{a:1}", "{\"a\":01x}", "{\"a\":+1}", "{\"a\":truefalse}",
                "{\"a\":nul}", "{\"a\":{\"b\":1]}", "{\"a\":[1,]}", "{\"a\":[1 2]}", "{} {}", "[]",
                "1", "\"", "{\"\\u00g0\":1}", "{\"\\u0", "{\"\\x\":1}")) {
            Check.fails(IllegalArgumentException.class, () -> Json.read(text));
        }
    }
}
