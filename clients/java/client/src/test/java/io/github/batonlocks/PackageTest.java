package io.github.batonlocks;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;

/** The size of the client, its dependencies (none), and the examples of its pages. */
public final class PackageTest {
    private static final Path ROOT = Path.of(System.getProperty("baton.root"));

    private PackageTest() {}

    private static List<String> lines() throws IOException {
        try (Stream<Path> files = Files.walk(ROOT.resolve("client/src/main"))) {
            var found = new java.util.ArrayList<String>();
            for (Path file : files.filter(it -> it.toString().endsWith(".java")).toList()) {
                Files.readString(file).lines().map(String::strip).forEach(found::add);
            }
            return found;
        }
    }

    private static long code(List<String> lines) {
        String rest = "(//|/?\\*|import |package |@Override).*|[\\])};,({]*";
        return lines.stream().filter(it -> !it.matches(rest)).count();
    }

    public static void theClientHasAtMost740LinesOfCode() throws IOException {
        long count = code(lines());
        Check.isTrue(count > 300 && count <= 740, count);
    }

    public static void theClientNeedsTheJdkAlone() throws IOException {
        for (String line : lines()) {
            boolean isForeign = line.startsWith("import ")
                    && !line.matches("import (java\\.|io\\.github\\.batonlocks\\.).*");
            Check.isTrue(!isForeign, line);
        }
    }

    public static void theExamplesOfThePagesAreThoseThatRun() throws IOException {
        String run = plain(Files.readString(ROOT.resolve(
                "client/src/test/java/io/github/batonlocks/AgentTest.java")));
        for (String page : List.of("README.md", "../../docs/user/java.md")) {
            var parts = Files.readString(ROOT.resolve(page)).split("```");
            int examples = 0;
            for (String part : parts) {
                if (part.startsWith("java\n")) {
                    String example = plain(part.substring(5));
                    Check.isTrue(run.contains(example), page + ": " + example);
                    examples++;
                }
            }
            Check.isTrue(examples > 0, page);
        }
    }

    private static String plain(String text) {
        return text.replaceAll("(?m)^ +", "");
    }

    public static void theReadmeHoldsALockInItsFirstTenLines() throws IOException {
        var head = Files.readString(ROOT.resolve("README.md")).lines().limit(10).toList();
        Check.isTrue(String.join("\n", head).contains("Baton.lock("), head);
    }
}
