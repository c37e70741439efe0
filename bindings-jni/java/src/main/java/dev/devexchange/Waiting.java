package dev.devexchange;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.function.Supplier;
import java.util.stream.Stream;

/**
 * Calls that wait in native code until a thread of Java's answers, or another process. A virtual thread keeps its
 * carrier as long as it is in native code: if all carriers wait like that, none is left for the virtual thread that the
 * answer may need. So a worker makes the call for it, and it waits in Java.
 */
final class Waiting {
    /** {@code Thread.isVirtual}; null on a JVM that has no such threads. */
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

    /** Makes the call, and waits for it, also if the thread is interrupted. */
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

    /** What a call threw, which knows only where the worker was. */
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
