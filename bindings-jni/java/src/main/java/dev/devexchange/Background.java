package dev.devexchange;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Objects;
import java.util.function.LongConsumer;

/** What the threads of this library have in common: daemons, which keep no JVM from exiting. */
final class Background {
    private static final int BATCH = 256;

    /** What there is to say where there is no memory to say it. */
    private static final DevExchangeException FULL =
            new DevExchangeException(Status.OUT_OF_MEMORY, "the JVM has no memory, also not to say why");

    private Background() {}

    /** A thread that is not started yet. */
    static Thread thread(String name, Runnable run) {
        Thread thread = new Thread(null, run, name, 0, false);
        thread.setDaemon(true);
        // What happens to be the context of whoever came first is not to be kept for good.
        thread.setContextClassLoader(ClassLoader.getSystemClassLoader());
        return thread;
    }

    /** A thread that gives {@code deliver}, which does not throw, the tokens of one of the two native queues. */
    static Thread taker(String name, boolean events, LongConsumer deliver) {
        return thread(name, () -> {
            ByteBuffer tokens = tokens();
            long address = Calls.bufferAddress(tokens);
            while (true) {
                int count = Native.queueWait(events, address, BATCH);
                for (int i = 0; i < count; i++) {
                    deliver.accept(tokens.getLong(i * Long.BYTES));
                }
            }
        });
    }

    /** Room for tokens. Everybody counts on the thread, so this waits for memory where there is none. */
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
     * A token as the key of a table. Who sent it counts on what it stands for: where there is no memory, this waits for
     * some.
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

    /** What a callback of the user's threw, as whoever called is told it: with its status, if it has one. */
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

    /** An exception as a text for others; its class at least. */
    static String text(Throwable thrown) {
        try {
            return Objects.requireNonNull(thrown.toString());
        } catch (Throwable again) {
            return thrown.getClass().getName();
        }
    }

    /**
     * A text that may be null, with a question mark for half a surrogate pair, which is no character in UTF-8. Somebody
     * waits for it: where there is no memory it stays as it is.
     */
    static String sendable(String text) {
        try {
            return text == null ? null : new String(text.getBytes(StandardCharsets.UTF_8), StandardCharsets.UTF_8);
        } catch (OutOfMemoryError none) {
            return text;
        }
    }

    /** Says in the trace where an exception came from, of which whoever called is told no more than the text. */
    static void trace(Throwable thrown) {
        try {
            if (Native.tracing()) {
                StringWriter stack = new StringWriter();
                thrown.printStackTrace(new PrintWriter(stack));
                System.err.print("devexchange: a callback failed: " + stack);
            }
        } catch (Throwable ignored) {
            // The caller is told all the same.
        }
    }

    /** Says what went wrong where there is nobody to tell. */
    static void log(String what, Throwable thrown) {
        try {
            Logger logger = System.getLogger("dev.devexchange");
            logger.log(Level.ERROR, what, thrown);
        } catch (Throwable ignored) {
            // A logger that fails is no reason to stop.
        }
    }
}
