package io.github.batonlocks;

import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;

/**
 * Agent that answers each request with what a script sends. The script's URL is {@link #END} where
 * the body of a request ends that was open.
 */
final class ScriptedAgent {
    static final String END = "0\r\n\r\n";
    static final String HEAD = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

    interface Script {
        void answer(String url, Sender send) throws IOException;
    }

    interface Sender {
        /** Sends text; null closes the connection. */
        void send(String text) throws IOException;
    }

    final Path socket;
    /** Connections that clients have made; each is done once it is closed. */
    final List<Future<Void>> connections = new CopyOnWriteArrayList<>();

    ScriptedAgent(boolean staysOpen, Script script) throws IOException {
        Path folder = Files.createTempDirectory("baton");
        socket = folder.resolve("sock");
        var listener = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
        listener.bind(UnixDomainSocketAddress.of(socket));
        // The last that is asked for is deleted first.
        folder.toFile().deleteOnExit();
        socket.toFile().deleteOnExit();
        Check.start(() -> {
            while (true) {
                SocketChannel channel = listener.accept();
                var serving = new FutureTask<Void>(() -> {
                    var request = ByteBuffer.allocate(1 << 16);
                    do {
                        int size = channel.isOpen() ? channel.read(request.clear()) : -1;
                        if (size < 0) {
                            break;
                        }
                        var text = new String(request.array(), 0, size, StandardCharsets.UTF_8);
                        // The end of a body may come with the next request.
                        if (text.startsWith(END)) {
                            answer(channel, script, END);
                            text = text.substring(END.length());
                        }
                        if (!text.isEmpty()) {
                            answer(channel, script, text.split(" ")[1]);
                        }
                    } while (staysOpen);
                    channel.close();
                    return null;
                });
                // Before it answers: a client that has an answer is one of the connections.
                connections.add(serving);
                Check.start(Executors.callable(serving, null));
            }
        });
    }

    private static void answer(SocketChannel channel, Script script, String url) {
        try {
            script.answer(url, it -> {
                if (it == null) {
                    channel.close();
                    return;
                }
                var data = ByteBuffer.wrap(it.getBytes(StandardCharsets.UTF_8));
                while (data.hasRemaining()) {
                    channel.write(data);
                }
            });
        } catch (IOException error) {
            // The client has gone.
        }
    }

    static String whole(Object answer, String status) {
        String body = Json.write(answer);
        int length = body.getBytes(StandardCharsets.UTF_8).length;
        return "HTTP/1.1 " + status + "\r\nContent-Length: " + length + "\r\n\r\n" + body;
    }

    /** A chunk of one event. */
    static String line(Object event) {
        String line = Json.write(event) + "\n";
        return Integer.toHexString(line.length()) + "\r\n" + line + "\r\n";
    }
}
