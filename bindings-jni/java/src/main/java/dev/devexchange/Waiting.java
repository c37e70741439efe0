package dev.devexchange;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.function.Supplier;
import java.util.stream.Stream;

/**
 * Makes calls that wait in native code for an answer of a Java thread or of another process. A virtual thread holds its
 * carrier while it is in native code. If all carriers waited like that, none would be left for the virtual thread that
 * the answer may need. So a worker makes the call for a virtual thread, which waits in Java.
 */
final class Waiting {
    /** {@code Thread.isVirtual}; null on a JVM without virtual threads. */
    private static final MethodHandle IS_VIRTUAL = isVirtual();

    private Waiting() {}

    private static MethodHandle isVirtual() {
        try {
            return MethodHandles.publicLookup()
                    .findVirtual(Thread.class, "isVirtual", MethodType.methodType(boolean.class));
        } catch (NoSuchMethodException | IllegalAccessException none) {
            return null;
        }
    }

    private static boolean onVirtual() {
        try {
            return IS_VIRTUAL != null && (boolean) IS_VIRTUAL.invokeExact(Thread.currentThread());
        } catch (Throwable thrown) {
            throw new IllegalStateException(thrown);
        }
    }

    /** Makes the call, and waits for it even if the thread is interrupted. */
    static <T> T call(Supplier<T> call) {
        if (!onVirtual()) {
            return call.get();
        }
        CompletableFuture<T> answer = new CompletableFuture<>();
        Dispatcher.WORKERS.execute(() -> {
            try {
                answer.complete(call.get());
            } catch (Throwable thrown) {
                answer.completeExceptionally(thrown);
            }
        });
        try {
            return answer.join();
        } catch (CompletionException failed) {
            throw thrown(failed);
        }
    }

    /** What a call threw, with the caller's stack trace appended to the worker's. */
    private static RuntimeException thrown(CompletionException failed) {
        Throwable cause = failed.getCause();
        cause.setStackTrace(Stream.of(cause.getStackTrace(), failed.getStackTrace())
                .flatMap(Stream::of)
                .toArray(StackTraceElement[]::new));
        if (cause instanceof Error error) {
            throw error;
        }
        return (RuntimeException) cause;
    }
}
