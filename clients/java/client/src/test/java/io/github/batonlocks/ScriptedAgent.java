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

/** Agent that answers each request with what a script sends. */
final class ScriptedAgent {
    interface Script {
        void answer(String url, Sender send) throws IOException;
    }

    interface Sender {
        void send(String text) throws IOException;
    }

    final Path socket;

    ScriptedAgent(boolean staysOpen, Script script) throws IOException {
        Path folder = Files.createTempDirectory("baton");
        socket = folder.resolve("sock");
        var listener = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
        listener.bind(UnixDomainSocketAddress.of(socket));
        socket.toFile().deleteOnExit();
        folder.toFile().deleteOnExit();
        Check.start(() -> {
            while (true) {
                SocketChannel channel = listener.accept();
                Check.start(() -> {
                    var request = ByteBuffer.allocate(1 << 16);
                    channel.read(request);
                    var text = new String(request.array(), StandardCharsets.UTF_8);
                    String url = text.split(" ")[1];
                    try {
                        script.answer(url, it -> {
                            var data = ByteBuffer.wrap(it.getBytes(StandardCharsets.UTF_8));
                            while (data.hasRemaining()) {
                                channel.write(data);
                            }
                        });
                    } catch (IOException error) {
                        // The client has gone.
                    }
                    if (!staysOpen || url.equals("/v1/health")) {
                        channel.close();
                    }
                    return null;
                });
            }
        });
    }

    static String whole(Object answer, String status) {
        String body = Json.write(answer);
        int length = body.getBytes(StandardCharsets.UTF_8).length;
        return "HTTP/1.1 " + status + "\r\nContent-Length: " + length + "\r\n\r\n" + body;
    }

    static String line(Object event) {
        return Json.write(event) + "\n";
    }
}
