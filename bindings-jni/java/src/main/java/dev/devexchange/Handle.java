package dev.devexchange;

import java.lang.invoke.VarHandle;
import java.lang.ref.PhantomReference;
import java.util.concurrent.atomic.AtomicIntegerFieldUpdater;

/**
 * One reference to a native thing, and who is using it right now.
 *
 * <p>Each native call stands between {@link #enter} and {@link #exit}. Closing makes {@code enter} fail from then on;
 * the reference itself is given up when the last one inside has left, which is at once unless another thread is in a
 * call. So a call never sees its thing disappear, and nobody waits for anybody. The reference to the owner is what
 * {@link Net} finds it by, should nobody close it.
 *
 * <p>It is made before the native call that gives the reference, as all of its owner is, and then told the address: the
 * JVM may have no memory for an object, and so it has to say before anything is taken.
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

    /** The bit of {@link #state} that says that it is open. */
    private static final int OPEN = 1;

    /** What {@link #state} has more for each call that is inside. */
    private static final int USE = 2;

    /** What {@link #state} has more while one call has the handle for itself. */
    private static final int ALONE = 1 << 30;

    private static final AtomicIntegerFieldUpdater<Handle> STATE =
            AtomicIntegerFieldUpdater.newUpdater(Handle.class, "state");

    private final Kind kind;

    // Written once, by `hold`.
    private long address;
    private int place;

    // Of the net, which many of them make a ring.
    Handle next;
    Handle previous;

    /** The newest view of its memory. */
    View views;

    /** 0 at first, as there is no reference yet, and when it is given up: not open, and nobody inside. */
    private volatile int state;

    /**
     * For a reference that Java is about to be given. Until then it is closed, also to {@link Net}, who may find it
     * without one.
     *
     * @param owner whoever closes it; if it is collected without that, the reference is given up all the same
     */
    Handle(Object owner, Kind kind) {
        super(owner, Net.COLLECTED);
        this.kind = kind;
    }

    /** The reference that Java was just given. Takes no memory. */
    void hold(long given) {
        address = given;
        place = Net.hold(this);
        STATE.lazySet(this, OPEN);
        // Who sees the owner sees all that, as if this were a constructor.
        VarHandle.storeStoreFence();
    }

    private long token() {
        return address | kind.tag;
    }

    /** Starts a use. {@code method} is for the message if the handle is closed. */
    long enter(String method) {
        while (true) {
            int now = state;
            if ((now & OPEN) == 0) {
                throw closed(method);
            }
            if (now >= ALONE) {
                // Not for long, unless the elements are copied for a consumer or a producer's release takes its time.
                Thread.yield();
            } else if (STATE.compareAndSet(this, now, now + USE)) {
                return address;
            }
        }
    }

    /** What {@link #enter} returned; the caller is inside. */
    long address() {
        return address;
    }

    /** Ends a use. */
    void exit() {
        leave(USE);
    }

    private void leave(int use) {
        if (STATE.addAndGet(this, -use) == 0) {
            Native.release(token());
        }
    }

    /** As {@link #enter}, and until {@link #exitAlone} nobody else enters; 0 if somebody is inside. */
    long tryAlone(String method) {
        if (STATE.compareAndSet(this, OPEN, OPEN + ALONE)) {
            return address;
        }
        check(method);
        return 0;
    }

    /** As {@link #tryAlone}, and waits for those who are inside. */
    long waitAlone(String method) {
        long alone = tryAlone(method);
        while (alone == 0) {
            Thread.yield();
            alone = tryAlone(method);
        }
        return alone;
    }

    /** As {@link #tryAlone}, and refuses if somebody is inside. */
    long enterAlone(String method) {
        long alone = tryAlone(method);
        if (alone == 0) {
            throw new DevExchangeException(
                    Status.INVALID_ARGUMENT, method + ": another thread is using the " + kind.noun);
        }
        return alone;
    }

    void exitAlone() {
        leave(ALONE);
    }

    /** As {@link #exitAlone}, of a call that gave the reference away: it is closed, and there is nothing to give up. */
    void exitMoved() {
        shut();
        STATE.addAndGet(this, -ALONE);
    }

    /** Closes it; false if it was closed already. */
    boolean close() {
        int before = shut();
        if (before == OPEN) {
            Native.release(token());
        }
        return before != 0;
    }

    /**
     * Closes it, now that a consumer has what was exported of it to the struct at an address. If another thread closed
     * or moved it at the same time and was first, it was not this one's to give, and the export is taken back.
     */
    void moved(String method, Kind struct, long exported) {
        if (!close()) {
            Native.structRelease(struct.tag, exported);
            throw closed(method);
        }
    }

    /** Closes it, and returns what {@link #state} was, or 0 if it was closed already. */
    private int shut() {
        while (true) {
            int now = state;
            if ((now & OPEN) == 0) {
                return 0;
            }
            if (STATE.compareAndSet(this, now, now - OPEN)) {
                Net.drop(this, place);
                return now;
            }
        }
    }

    boolean isClosed() {
        return (state & OPEN) == 0;
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
        if (shut() == OPEN) {
            ReleaseQueue.giveUp(token());
        }
    }
}
