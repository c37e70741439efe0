package dev.devexchange;

import java.nio.ByteBuffer;
import java.util.Objects;
import java.util.concurrent.Callable;

/** Answers the threads that wait for an {@link Allocator}, one question for each request. */
record AllocatorTask(Allocator allocator) implements Dispatcher.Task {
    // The kinds of questions (allocator.rs).
    private static final int INITIALIZE = 0;
    private static final int ALLOCATE = 1;
    private static final int PIN = 2;
    private static final int MEMORY_INFO = 3;
    private static final int IPC_HANDLE = 4;
    private static final int RESET = 5;
    private static final int TRIM = 6;
    private static final int DEFER_CLEANUP = 7;

    @Override
    public void start(long token) {
        Dispatcher.WORKERS.execute(() -> answer(token));
    }

    private void answer(long token) {
        Scratch scratch;
        try {
            scratch = Scratch.get();
        } catch (Throwable thrown) {
            failed(token, thrown);
            return;
        }
        long question = Native.allocatorTake(token, scratch.address);
        if (question == 0) {
            return;
        }
        try {
            ask(question, scratch);
        } catch (Throwable thrown) {
            // If the question was answered already, nobody waits for this.
            fail(question, thrown);
        }
    }

    @Override
    public void failed(long token, Throwable why) {
        long question = Native.allocatorTake(token, 0);
        if (question != 0) {
            fail(question, why);
        }
    }

    private static void fail(long question, Throwable why) {
        Background.trace(why);
        DevExchangeException failure = Background.failure(why);
        String text = Background.sendable(failure.getMessage());
        Native.allocatorFail(question, failure.status(), failure.driverCode(), text);
    }

    /** Asks the allocator, and answers. {@code scratch} holds the kind of question and up to four numbers. */
    private void ask(long question, Scratch scratch) throws Exception {
        ByteBuffer asked = scratch.buffer;
        long first = asked.getLong(Long.BYTES);
        long second = asked.getLong(2 * Long.BYTES);
        long third = asked.getLong(3 * Long.BYTES);
        int fourth = (int) asked.getLong(4 * Long.BYTES);
        int deviceId = (int) first;
        switch ((int) asked.getLong(0)) {
            case INITIALIZE -> allocator.initialize(deviceId);
            case ALLOCATE -> {
                allocate(question, new MemoryRequest(Device.unpack(first), second, third, fourth));
                return;
            }
            case PIN -> {
                Given given = new Given();
                given.by(() -> given.release = allocator.pin(deviceId, second, third, fourth));
                given.answer(question, 0, 0);
                return;
            }
            case MEMORY_INFO -> {
                MemoryInfo info = Objects.requireNonNull(allocator.memoryInfo(deviceId), "memoryInfo returned null");
                Native.allocatorAnswer(question, info.freeBytes(), info.totalBytes(), 0);
                return;
            }
            case IPC_HANDLE -> {
                IpcHandle handle = allocator.ipcHandle(first);
                if (handle != null) {
                    // Not {@code scratch}: calls of the allocator may have replaced this thread's scratch memory.
                    Scratch answer = Scratch.get();
                    handle.write(answer.buffer);
                    Native.allocatorAnswerIpcHandle(question, answer.address);
                    return;
                }
            }
            case RESET -> allocator.reset(deviceId);
            case TRIM -> allocator.trim(deviceId, second);
            case DEFER_CLEANUP -> allocator.deferCleanup(first != 0);
            default -> throw new AssertionError("question " + asked.getLong(0));
        }
        Native.allocatorAnswer(question, 0, 0, 0);
    }

    private void allocate(long question, MemoryRequest request) throws Exception {
        Given given = new Given();
        Allocation made = given.by(() -> {
            given.hold = Native.streamHold(request.stream());
            Allocation memory = Objects.requireNonNull(allocator.allocate(request), "allocate returned null");
            given.kept = memory.kept();
            given.release = memory.release();
            return memory;
        });
        if (made.kept() instanceof Allocation.Counted memory && memory.bytes() < request.bytes()) {
            given.takeBack();
            throw new DevExchangeException(
                    Status.CALLBACK,
                    "allocate returned a ByteBuffer of " + memory.bytes() + " bytes: it was asked for "
                            + request.bytes());
        }
        given.answer(question, made.address(), made.device().packed());
    }

    /** What the allocator gives. Registered with the queue in advance, so that it is not lost when memory runs out. */
    private static final class Given implements Runnable {
        private final Long token = ReleaseQueue.register(this, this);

        // Written before any other thread knows the token.
        private Object kept;
        private Runnable release;
        /** The hold on the stream that the release may need. */
        private long hold;

        <T> T by(Callable<T> call) throws Exception {
            try {
                return call.call();
            } catch (Throwable thrown) {
                cancel();
                throw thrown;
            }
        }

        private void cancel() {
            ReleaseQueue.cancel(token);
            Native.streamLetGo(hold);
        }

        /** Gives the memory back at once, because nobody gets it. */
        void takeBack() {
            Native.queuePush(token);
        }

        /** Answers with two numbers, and the token that gives the memory back. */
        void answer(long question, long first, long second) {
            if (kept == null && release == null) {
                cancel();
                Native.allocatorAnswer(question, first, second, 0);
            } else {
                Native.allocatorAnswer(question, first, second, token);
            }
        }

        @Override
        public void run() {
            try {
                if (release != null) {
                    release.run();
                }
            } finally {
                Native.streamLetGo(hold);
            }
        }
    }
}
