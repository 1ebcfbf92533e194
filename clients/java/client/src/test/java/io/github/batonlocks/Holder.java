package io.github.batonlocks;

import java.nio.file.Path;
import java.time.Duration;

/** Program that holds a lock until its input ends. */
final class Holder {
    private Holder() {}

    public static void main(String[] arguments) throws Exception {
        var lock = new Agent(Path.of(arguments[0])).lock(arguments[1]);
        System.out.println(lock.sessionTimeout(Duration.ofSeconds(40)).acquire().token());
        if (arguments.length == 2) {
            System.in.read();
        }
    }
}
