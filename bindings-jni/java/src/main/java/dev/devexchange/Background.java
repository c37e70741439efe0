package dev.devexchange;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.security.AccessController;
import java.security.PrivilegedAction;
import java.util.Objects;
import java.util.function.LongConsumer;

/** What the threads of this library share: they are daemons, which do not keep the JVM from exiting. */
final class Background {
    private static final int BATCH = 256;

    /** The error for when there is no memory to make a more exact one. */
    private static final DevExchangeException FULL = DevExchangeException.withoutTrace(
            Status.OUT_OF_MEMORY, "the JVM is out of memory and cannot describe what failed");

    private Background() {}

    /** Makes a thread, without starting it. It keeps nothing of the caller, which may be an application of a server. */
    @SuppressWarnings("removal")
    static Thread thread(String name, Runnable run) {
        PrivilegedAction<Thread> make = () -> new Thread(top(), run, name, 0, false);
        // Before JDK 24, a thread keeps the class loaders of everybody on the stack, up to `doPrivileged`.
        Thread thread = Runtime.version().feature() < 24 ? AccessController.doPrivileged(make) : make.run();
        thread.setDaemon(true);
        thread.setContextClassLoader(ClassLoader.getSystemClassLoader());
        return thread;
    }

    /** The group above all others. The caller's own can be an application's: it would be kept, and interrupted. */
    private static ThreadGroup top() {
        ThreadGroup group = Thread.currentThread().getThreadGroup();
        while (group.getParent() != null) {
            group = group.getParent();
        }
        return group;
    }

    /**
     * Makes a thread that passes the tokens of one of the two native queues to {@code deliver}, which must not throw.
     */
    static Thread taker(String name, boolean events, LongConsumer deliver) {
        return thread(name, () -> {
            ByteBuffer tokens = tokens();
            // By JNI also where there is another way, because it allocates nothing.
            long address = Native.bufferAddress(tokens);
            while (true) {
                int count = Native.queueWait(events, address, BATCH);
                for (int i = 0; i < count; i++) {
                    deliver.accept(tokens.getLong(i * Long.BYTES));
                }
            }
        });
    }

    /**
     * Allocates a buffer for tokens. If there is no memory, it waits for some, because everything depends on the
     * thread.
     */
    private static ByteBuffer tokens() {
        while (true) {
            try {
                return ByteBuffer.allocateDirect(BATCH * Long.BYTES).order(ByteOrder.nativeOrder());
            } catch (OutOfMemoryError none) {
                Thread.yield();
            }
        }
    }

    /**
     * Boxes a token as the key of a table. If there is no memory, it waits for some, because a token must not be lost.
     */
    static Long key(long token) {
        while (true) {
            try {
                return token;
            } catch (OutOfMemoryError none) {
                Thread.yield();
            }
        }
    }

    /** The error that the caller gets for an exception of a user's callback: with its status, if it has one. */
    static DevExchangeException failure(Throwable thrown) {
        if (thrown instanceof DevExchangeException known) {
            return known;
        }
        int status = thrown instanceof OutOfMemoryError ? Status.OUT_OF_MEMORY : Status.CALLBACK;
        try {
            return new DevExchangeException(status, text(thrown));
        } catch (OutOfMemoryError none) {
            return FULL;
        }
    }

    /** The text of an exception; its class name if {@code toString} fails. */
    static String text(Throwable thrown) {
        try {
            return Objects.requireNonNull(thrown.toString());
        } catch (Throwable again) {
            return thrown.getClass().getName();
        }
    }

    /**
     * Replaces half surrogate pairs, which UTF-8 cannot encode, by question marks; {@code text} may be null. If there
     * is no memory, the text is returned unchanged, because a thread waits for it.
     */
    static String sendable(String text) {
        try {
            return text == null ? null : new String(text.getBytes(StandardCharsets.UTF_8), StandardCharsets.UTF_8);
        } catch (OutOfMemoryError none) {
            return text;
        }
    }

    /** Writes the origin of an exception to the trace; the caller gets only its text. */
    static void trace(Throwable thrown) {
        try {
            if (Native.tracing()) {
                StringWriter stack = new StringWriter();
                thrown.printStackTrace(new PrintWriter(stack));
                System.err.print("devexchange: a callback failed: " + stack);
            }
        } catch (Throwable ignored) {
            // The caller gets the error in any case.
        }
    }

    /** Logs an error that no caller can be told. */
    static void log(String what, Throwable thrown) {
        try {
            Logger logger = System.getLogger("dev.devexchange");
            logger.log(Level.ERROR, what, thrown);
        } catch (Throwable ignored) {
            // A failing logger is no reason to stop.
        }
    }
}
