package dev.devexchange;

import java.nio.ByteBuffer;
import java.util.Objects;

/** Answers those who wait for an {@link Allocator}: each time that they ask, one question. */
record AllocatorTask(Allocator allocator) implements Dispatcher.Task {
    // What is asked (allocator.rs).
    private static final int INITIALIZE = 0;
    private static final int ALLOCATE = 1;
    private static final int PIN = 2;
    private static final int MEMORY_INFO = 3;
    private static final int IPC_HANDLE = 4;
    private static final int RESET = 5;
    private static final int TRIM = 6;
    private static final int DEFER_CLEANUP = 7;

    /** Says something to whoever waits. */
    private interface Answer {
        void give(long question);
    }

    private static final Answer NOTHING = question -> Native.allocatorAnswer(question, 0, 0, 0);

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
        Answer answer;
        try {
            answer = ask(scratch.buffer);
        } catch (Throwable thrown) {
            fail(question, thrown);
            return;
        }
        answer.give(question);
    }

    @Override
    public void failed(long token, Throwable why) {
        long question = Native.allocatorTake(token, 0);
        if (question != 0) {
            fail(question, why);
        }
    }

    private static void fail(long question, Throwable why) {
        DevExchangeException failure = Background.failure(why);
        Native.allocatorFail(question, failure.status(), failure.driverCode(), failure.getMessage());
    }

    /** {@code question} is what is asked and up to four numbers. */
    private Answer ask(ByteBuffer question) throws Exception {
        long first = question.getLong(Long.BYTES);
        long second = question.getLong(2 * Long.BYTES);
        long third = question.getLong(3 * Long.BYTES);
        int fourth = (int) question.getLong(4 * Long.BYTES);
        int deviceId = (int) first;
        switch ((int) question.getLong(0)) {
            case INITIALIZE -> allocator.initialize(deviceId);
            case ALLOCATE -> {
                return given(allocator.allocate(new MemoryRequest(Device.unpack(first), second, third, fourth)));
            }
            case PIN -> {
                Runnable release = allocator.pin(deviceId, second, third, fourth);
                return owned(0, 0, null, release);
            }
            case MEMORY_INFO -> {
                MemoryInfo info = Objects.requireNonNull(allocator.memoryInfo(deviceId), "memoryInfo returned null");
                return number -> Native.allocatorAnswer(number, info.freeBytes(), info.totalBytes(), 0);
            }
            case IPC_HANDLE -> {
                IpcHandle handle = allocator.ipcHandle(first);
                return handle == null ? NOTHING : number -> {
                    Scratch scratch = Scratch.get();
                    handle.write(scratch.buffer);
                    Native.allocatorAnswerIpcHandle(number, scratch.address);
                };
            }
            case RESET -> allocator.reset(deviceId);
            case TRIM -> allocator.trim(deviceId, second);
            case DEFER_CLEANUP -> allocator.deferCleanup(first != 0);
            default -> throw new AssertionError("question " + question.getLong(0));
        }
        return NOTHING;
    }

    private static Answer given(Allocation given) {
        Objects.requireNonNull(given, "allocate returned null");
        return owned(given.address(), given.device().packed(), given.kept(), given.release());
    }

    /** Two numbers, and what gives memory back. */
    private static Answer owned(long first, long second, Object kept, Runnable release) {
        boolean nothing = kept == null && release == null;
        long token = nothing ? 0 : ReleaseQueue.register(kept, release);
        return question -> Native.allocatorAnswer(question, first, second, token);
    }
}
