package dev.devexchange;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;

/**
 * How native threads have something done in Java: they queue a token and never enter the JVM. The thread
 * {@code devexchange-events} takes the tokens out and hands what they stand for to workers, of which there are as many
 * as are busy at the same time: one that waits for another makes nobody wait.
 */
final class Dispatcher {
    /** What a token stands for. */
    interface Task {
        /** Has it done. Called on the thread of the queue, so it does not wait and calls nothing of the user's. */
        void start(long token);

        /** It could not be started: there is no memory, or no thread. */
        void failed(long token, Throwable why);
    }

    private static final Map<Long, Task> TASKS = new ConcurrentHashMap<>();
    private static final AtomicLong WORKERS_MADE = new AtomicLong();

    /** Daemon threads, which end when they had nothing to do for a while. */
    static final Executor WORKERS = new ThreadPoolExecutor(
            0,
            Integer.MAX_VALUE,
            10,
            TimeUnit.SECONDS,
            new SynchronousQueue<>(),
            run -> Background.thread("devexchange-worker-" + WORKERS_MADE.incrementAndGet(), run));

    private static final Thread THREAD = Background.taker("devexchange-events", true, Dispatcher::deliver);

    static {
        THREAD.start();
        try {
            // Who still waits for Java then would wait for ever.
            Runtime.getRuntime().addShutdownHook(new Thread(Native::answersClose, "devexchange-exit"));
        } catch (IllegalStateException e) {
            Native.answersClose();
        }
    }

    private Dispatcher() {}

    /**
     * A token that may be asked for until it is released; then {@code release}, which may be null, runs on the thread
     * of the {@link ReleaseQueue}.
     */
    static Long register(Task task, Runnable release) {
        Registration registration = new Registration(release);
        Long token = ReleaseQueue.register(null, registration);
        registration.token = token;
        try {
            TASKS.put(token, task);
        } catch (Throwable noMemory) {
            ReleaseQueue.cancel(token);
            throw noMemory;
        }
        return token;
    }

    /** Takes a registration back whose token will not come. Takes no memory. */
    static void cancel(Long token) {
        ReleaseQueue.cancel(token);
        TASKS.remove(token);
    }

    private static final class Registration implements Runnable {
        private final Runnable release;

        /** Written before anybody else knows of it. */
        private Long token;

        private Registration(Runnable release) {
            this.release = release;
        }

        @Override
        public void run() {
            TASKS.remove(token);
            if (release != null) {
                release.run();
            }
        }
    }

    /**
     * The workers, or an executor of the user's as seen from any thread of ours: the workers hand over to it, so it may
     * do what it likes. If it refuses something, {@code refused} is told.
     */
    static Executor executor(Executor given, Consumer<Throwable> refused) {
        if (given == null) {
            return WORKERS;
        }
        return run -> WORKERS.execute(() -> {
            try {
                given.execute(run);
            } catch (Throwable thrown) {
                refused.accept(thrown);
            }
        });
    }

    private static void deliver(long token) {
        Task task = TASKS.get(Background.key(token));
        if (task == null) {
            return;
        }
        try {
            task.start(token);
        } catch (Throwable thrown) {
            try {
                task.failed(token, thrown);
            } catch (Throwable again) {
                Background.log("an event could not be handled", again);
            }
        }
    }
}
