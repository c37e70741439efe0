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
 * Runs tasks in Java for native threads, which only queue a token and never enter the JVM. The thread {@code
 * devexchange-events} takes the tokens out of the queue and hands their tasks to workers. There are as many workers as
 * there are tasks running at the same time, so a task may wait for another one.
 */
final class Dispatcher {
    /** The task of a token. */
    interface Task {
        /** Starts the task. Called on the thread of the queue, so it must not wait or call any code of the user. */
        void start(long token);

        /** Called when the task could not be started, because there is no memory or no thread. */
        void failed(long token, Throwable why);
    }

    private static final Map<Long, Task> TASKS = new ConcurrentHashMap<>();
    private static final AtomicLong WORKERS_MADE = new AtomicLong();

    /** Daemon threads, which end after a while without work. */
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
            // A thread that still waits for Java at exit would wait for ever.
            Runtime.getRuntime().addShutdownHook(Background.thread("devexchange-exit", Native::answersClose));
        } catch (IllegalStateException e) {
            Native.answersClose();
        }
    }

    private Dispatcher() {}

    /**
     * Makes a token for a task that native code can start until it releases the token; then {@code release}, which may
     * be null, runs on the thread of the {@link ReleaseQueue}.
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

    /** Takes back a registration whose token will never be queued. Allocates nothing. */
    static void cancel(Long token) {
        ReleaseQueue.cancel(token);
        TASKS.remove(token);
    }

    private static final class Registration implements Runnable {
        private final Runnable release;

        /** Written before any other thread knows of it. */
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
     * The workers, or a user's executor that any of the library's threads can call: a worker hands each task over to
     * it, so that its {@code execute} may wait. If it rejects a task, {@code refused} gets the exception.
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
