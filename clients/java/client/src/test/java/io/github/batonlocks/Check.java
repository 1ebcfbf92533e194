package io.github.batonlocks;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;

/** Runs the tests: needs the JDK alone. Each public static method of the classes is one. */
public final class Check {
    private Check() {}

    interface Work {
        void run() throws Exception;
    }

    public static void main(String[] names) throws Exception {
        int passed = 0;
        int failed = 0;
        for (Class<?> type : new Class<?>[] {
            LeaseTest.class, AnswerTest.class, ConnectionTest.class, PackageTest.class,
            AgentTest.class}) {
            var methods = type.getDeclaredMethods();
            Arrays.sort(methods, Comparator.comparing(Method::getName));
            boolean isSkipped = type == AgentTest.class && System.getenv("BATON") == null;
            if (isSkipped) {
                System.err.println("NOT CHECKED: AgentTest: BATON names no command baton");
            }
            for (Method method : methods) {
                boolean isTest = method.getParameterCount() == 0
                        && java.lang.reflect.Modifier.isPublic(method.getModifiers());
                if (!isTest || isSkipped) {
                    continue;
                }
                try {
                    method.invoke(null);
                    passed++;
                } catch (InvocationTargetException error) {
                    System.err.println(type.getSimpleName() + "." + method.getName());
                    error.getCause().printStackTrace();
                    failed++;
                }
            }
        }
        AgentProcess.stopShared();
        System.out.println(passed + " passed, " + failed + " failed");
        System.exit(failed == 0 ? 0 : 1);
    }

    static void equal(Object found, Object expected) {
        if (!Objects.equals(found, expected)) {
            throw new AssertionError(found + ", not " + expected);
        }
    }

    static void isTrue(boolean condition, Object text) {
        if (!condition) {
            throw new AssertionError(text);
        }
    }

    static <T extends Throwable> T fails(Class<T> type, Work work) {
        try {
            work.run();
        } catch (Throwable error) {
            if (type.isInstance(error)) {
                return type.cast(error);
            }
            throw new AssertionError("not a " + type.getSimpleName(), error);
        }
        throw new AssertionError("no " + type.getSimpleName());
    }

    /** Runs work in another thread. */
    static <T> FutureTask<T> start(Callable<T> work) {
        var task = new FutureTask<T>(work);
        var thread = new Thread(task);
        thread.setDaemon(true);
        thread.start();
        return task;
    }

    static <T> T result(java.util.concurrent.Future<T> task) throws Exception {
        return task.get(60, TimeUnit.SECONDS);
    }
}
