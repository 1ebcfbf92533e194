package io.github.batonlocks;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.ProcessBuilder.Redirect;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Agent with a server of its own, of the command that BATON names. */
final class AgentProcess {
    private static AgentProcess shared;
    Process process;
    final Agent agent;
    private final Path folder;

    AgentProcess() throws IOException {
        folder = Files.createTempDirectory("baton");
        agent = new Agent(folder.resolve("agent.sock"));
        start();
    }

    void start() throws IOException {
        process = new ProcessBuilder(System.getenv("BATON"), "--data-dir",
                folder.resolve("data").toString(), "agent", "--socket", agent.socket.toString())
                .redirectError(Redirect.appendTo(folder.resolve("log").toFile())).start();
        // It prints one line once it listens.
        if (line(process) == null) {
            throw new IOException(Files.readString(folder.resolve("log")));
        }
    }

    static AgentProcess shared() throws IOException {
        shared = shared == null ? new AgentProcess() : shared;
        return shared;
    }

    static void stopShared() throws Exception {
        if (shared != null) {
            shared.stop();
        }
    }

    void stop() throws Exception {
        process.destroy();
        process.waitFor();
        // The agent has started a server of this folder, whose number is in its file.
        String lock = Files.readString(folder.resolve("data").resolve("LOCK"));
        long pid = Long.parseLong(lock.trim().split("\\s+")[0]);
        ProcessHandle.of(pid).ifPresent(server -> {
            server.destroy();
            server.onExit().join();
        });
        try (var files = Files.walk(folder)) {
            files.sorted(java.util.Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
        }
    }

    static String line(Process process) throws IOException {
        return new BufferedReader(new InputStreamReader(process.getInputStream())).readLine();
    }

    /** Starts a main class of the tests as another process. */
    static Process program(String type, Object... arguments) throws IOException {
        var command = new ArrayList<>(List.of(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-XX:TieredStopAtLevel=1", "-cp", System.getProperty("java.class.path"), type));
        for (Object argument : arguments) {
            command.add(argument.toString());
        }
        return new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
    }
}
