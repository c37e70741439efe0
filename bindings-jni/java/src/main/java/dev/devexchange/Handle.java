package dev.devexchange;

import java.lang.ref.PhantomReference;
import java.util.concurrent.atomic.AtomicIntegerFieldUpdater;

/**
 * One reference to a native thing, and who is using it right now.
 *
 * <p>Each native call stands between {@link #enter} and {@link #exit}. Closing makes {@code enter} fail from then on;
 * the reference itself is given up when the last one inside has left, which is at once unless another thread is in a
 * call. So a call never sees its thing disappear, and nobody waits for anybody. The reference to the owner is what
 * {@link Net} finds it by, should nobody close it.
 */
final class Handle extends PhantomReference<Object> {
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

    /** The bit of {@link #state} that says that it is closed. */
    private static final int CLOSED = 1;

    /** What {@link #state} has more for each call that is inside. */
    private static final int USE = 2;

    /** What {@link #state} has more while one call has the handle for itself. */
    private static final int ALONE = 1 << 30;

    private static final AtomicIntegerFieldUpdater<Handle> STATE =
            AtomicIntegerFieldUpdater.newUpdater(Handle.class, "state");

    private final Kind kind;
    private final long address;
    private final int place;

    /** Open and unused at first; at {@link #CLOSED} alone the reference is given up. */
    private volatile int state;

    /**
     * A reference that Java was just given.
     *
     * @param owner whoever closes it; if it is collected without that, the reference is given up all the same
     */
    Handle(Object owner, Kind kind, long address) {
        super(owner, Net.COLLECTED);
        this.kind = kind;
        this.address = address;
        this.place = Net.hold(this);
    }

    private long token() {
        return address | kind.tag;
    }

    /** Starts a use. {@code method} is for the message if the handle is closed. */
    long enter(String method) {
        while (true) {
            int now = state;
            if ((now & CLOSED) != 0) {
                throw closed(method);
            }
            if (now >= ALONE) {
                // Not for long: such a call neither waits nor calls the driver.
                Thread.onSpinWait();
            } else if (STATE.compareAndSet(this, now, now + USE)) {
                return address;
            }
        }
    }

    /** Ends a use. */
    void exit() {
        leave(USE);
    }

    private void leave(int use) {
        if (STATE.addAndGet(this, -use) == CLOSED) {
            Native.release(token());
        }
    }

    /** As {@link #enter}, and until {@link #exitAlone} nobody else enters. Refuses if somebody is inside. */
    long enterAlone(String method) {
        if (!STATE.compareAndSet(this, 0, ALONE)) {
            check(method);
            throw new DevExchangeException(
                    Status.INVALID_ARGUMENT, method + ": another thread is using the " + kind.noun);
        }
        return address;
    }

    void exitAlone() {
        leave(ALONE);
    }

    /** Closes it; false if it was closed already. */
    boolean close() {
        int before = shut();
        if (before == 0) {
            Native.release(token());
        }
        return before != CLOSED;
    }

    /** Closes it, and returns the uses that there are, or {@link #CLOSED} if it was closed already. */
    private int shut() {
        while (true) {
            int now = state;
            if ((now & CLOSED) != 0) {
                return CLOSED;
            }
            if (STATE.compareAndSet(this, now, now | CLOSED)) {
                Net.drop(this, place);
                return now;
            }
        }
    }

    boolean isClosed() {
        return (state & CLOSED) != 0;
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

    /** What becomes of one whose owner is gone: as a finalizer it only queues, and the thread of the queue releases. */
    void giveUp() {
        if (shut() == 0) {
            ReleaseQueue.giveUp(token());
        }
    }
}
