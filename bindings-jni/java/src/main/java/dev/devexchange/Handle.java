package dev.devexchange;

import java.lang.ref.Cleaner;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/**
 * One reference to a native thing, and who is using it right now.
 *
 * <p>Each native call stands between {@link #enter} and {@link #exit}. Closing makes {@code enter} fail from then on;
 * the reference itself is given up when the last one inside has left, which is at once unless another thread is in a
 * call. So a call never sees its thing disappear, and nobody waits for anybody.
 */
final class Handle {
    /** What it is a reference to. */
    enum Kind {
        TENSOR(1, "tensor"),
        BATCH(2, "batch"),
        SCHEMA(3, "schema"),
        ARROW_ARRAY(4, "struct"),
        ARROW_SCHEMA(5, "struct"),
        ARROW_DEVICE_ARRAY(6, "struct"),
        STREAM(7, "stream"),
        BATCH_STREAM(8, "stream"),
        CUDA_ARRAY(10, "struct"),
        ARROW_STREAM(11, "struct"),
        ARROW_DEVICE_STREAM(12, "struct"),
        ASYNC_READER(Kind.BOXED, "reader"),
        ASYNC_WRITER(Kind.BOXED, "writer"),
        MANAGER(Kind.BOXED, "manager"),
        MEMORY(Kind.BOXED, "memory"),
        DEFERRED(Kind.BOXED, "scope"),
        IPC_SERVER(Kind.BOXED, "server"),
        IPC_CLIENT(Kind.BOXED, "client");

        /** Of everything whose box knows by itself what it is ({@code boxed.rs}). */
        private static final int BOXED = 9;

        /** The low bits of a token; the same numbers as in {@code handle.rs}. */
        final int tag;

        private final String noun;

        Kind(int tag, String noun) {
            this.tag = tag;
            this.noun = noun;
        }
    }

    /** What {@link #users} has more while one call has the handle for itself. */
    private static final int ALONE = 1 << 30;

    private static final Cleaner CLEANER = Cleaner.create();

    private final Kind kind;
    private final long token;

    /** 0 once it is closed. */
    private final AtomicLong address;

    /** The handle itself until it is closed, and each call that is inside. */
    private final AtomicInteger users = new AtomicInteger(1);

    private final Cleaner.Cleanable net;

    /**
     * A reference that Java was just given.
     *
     * @param owner whoever closes it; if it is collected without that, the reference is given up all the same
     */
    Handle(Object owner, Kind kind, long address) {
        this.kind = kind;
        this.token = address | kind.tag;
        this.address = new AtomicLong(address);
        this.net = CLEANER.register(owner, this::giveUp);
    }

    /** Starts a use. {@code method} is for the message if the handle is closed. */
    long enter(String method) {
        for (int n = users.get(); n > 0; n = users.get()) {
            if (n >= ALONE) {
                // Not for long: such a call neither waits nor calls the driver.
                Thread.onSpinWait();
            } else if (users.compareAndSet(n, n + 1)) {
                long open = address.get();
                if (open != 0) {
                    return open;
                }
                exit();
                break;
            }
        }
        throw closed(method);
    }

    /** Ends a use. */
    void exit() {
        if (users.decrementAndGet() == 0) {
            Native.release(token);
        }
    }

    /** As {@link #enter}, and until {@link #exitAlone} nobody else enters. Refuses if somebody is inside. */
    long enterAlone(String method) {
        long open = address.get();
        if (open == 0) {
            throw closed(method);
        }
        if (!users.compareAndSet(1, 2 + ALONE)) {
            check(method);
            throw new DevExchangeException(
                    Status.INVALID_ARGUMENT, method + ": another thread is using the " + kind.noun);
        }
        return open;
    }

    void exitAlone() {
        users.addAndGet(-ALONE);
        exit();
    }

    /** Closes it; false if it was closed already. */
    boolean close() {
        if (address.getAndSet(0) == 0) {
            return false;
        }
        // The net would find the handle closed; this takes it away.
        net.clean();
        exit();
        return true;
    }

    boolean isClosed() {
        return address.get() == 0;
    }

    /** Refuses if it is closed: enough for what Java knows by itself. */
    void check(String method) {
        if (isClosed()) {
            throw closed(method);
        }
    }

    DevExchangeException closed(String method) {
        return new DevExchangeException(Status.CLOSED, method + ": the " + kind.noun + " is closed");
    }

    /** What the Cleaner does: as a finalizer it only queues, and the thread of the queue releases. */
    private void giveUp() {
        if (address.getAndSet(0) != 0 && users.decrementAndGet() == 0) {
            ReleaseQueue.giveUp(token);
        }
    }
}
