package dev.devexchange;

import java.lang.invoke.VarHandle;
import java.lang.ref.PhantomReference;
import java.util.concurrent.atomic.AtomicIntegerFieldUpdater;

/**
 * One reference to a native object, with a count of the calls that are using it right now.
 *
 * <p>Each native call stands between {@link #enter} and {@link #exit}. Closing makes {@code enter} fail from then on;
 * the reference itself is given up when the last one inside has left, which is at once unless another thread is in a
 * call. So the object never disappears during a call, and no thread waits for another. Through its phantom reference to
 * the owner, {@link Net} finds a handle that nobody closed.
 *
 * <p>A handle, like everything else in its owner, is made before the native call that gives the reference, and is told
 * the address afterwards: if the JVM has no memory for an object, it must fail before anything is taken.
 */
final class Handle extends PhantomReference<Object> {
    /** What a handle refers to. */
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

        /** The tag of everything whose box knows by itself what it holds ({@code boxed.rs}). */
        private static final int BOXED = 9;

        /** The low bits of a token; the same numbers as in {@code handle.rs}. */
        final int tag;

        private final String noun;

        Kind(int tag, String noun) {
            this.tag = tag;
            this.noun = noun;
        }
    }

    /** The bit of {@link #state} that is set while the handle is open. */
    private static final int OPEN = 1;

    /** What each call that is inside adds to {@link #state}. */
    private static final int USE = 2;

    /** What a call that has the handle for itself adds to {@link #state}. */
    private static final int ALONE = 1 << 30;

    private static final AtomicIntegerFieldUpdater<Handle> STATE =
            AtomicIntegerFieldUpdater.newUpdater(Handle.class, "state");

    private final Kind kind;

    // Written once, by `hold`.
    private long address;
    private int place;

    // Neighbours in a ring of the net.
    Handle next;
    Handle previous;

    /** The newest view of its memory. */
    View views;

    /** 0 before there is a reference and after it is given up: not open, and no call inside. */
    private volatile int state;

    /**
     * Makes a handle for a reference that Java is about to be given. Until then the handle is closed, also for {@link
     * Net}, which may find it without a reference.
     *
     * @param owner the object that closes the handle; if it is collected before it did, the reference is given up all
     *     the same
     */
    Handle(Object owner, Kind kind) {
        super(owner, Net.COLLECTED);
        this.kind = kind;
    }

    /** Takes the reference that Java was just given. Allocates nothing. */
    void hold(long given) {
        address = given;
        place = Net.hold(this);
        STATE.lazySet(this, OPEN);
        // A thread that sees the owner sees all of this, as if this were a constructor.
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
                // Short, unless elements are being copied for a consumer or a producer's release takes long.
                Thread.yield();
            } else if (STATE.compareAndSet(this, now, now + USE)) {
                return address;
            }
        }
    }

    /** The address that {@link #enter} returned. The caller must be inside. */
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

    /** Same as {@link #enter}, but no other call enters until {@link #exitAlone}. Returns 0 if a call is inside. */
    long tryAlone(String method) {
        if (STATE.compareAndSet(this, OPEN, OPEN + ALONE)) {
            return address;
        }
        check(method);
        return 0;
    }

    /** Same as {@link #tryAlone}, but waits until no call is inside. */
    long waitAlone(String method) {
        long alone = tryAlone(method);
        while (alone == 0) {
            Thread.yield();
            alone = tryAlone(method);
        }
        return alone;
    }

    /** Same as {@link #tryAlone}, but refuses if a call is inside. */
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

    /**
     * Ends the use of a call that gave the reference away: the handle is closed, and there is nothing left to give up.
     */
    void exitMoved() {
        shut();
        STATE.addAndGet(this, -ALONE);
    }

    /** Closes the handle; returns false if it was closed already. */
    boolean close() {
        int before = shut();
        if (before == OPEN) {
            Native.release(token());
        }
        return before != 0;
    }

    /**
     * Closes the handle after an export to the struct at address {@code exported}. If another thread closed or moved
     * the handle first, this thread had nothing to give away, and the export is taken back.
     */
    void moved(String method, Kind struct, long exported) {
        if (!close()) {
            Native.structRelease(struct.tag, exported);
            throw closed(method);
        }
    }

    /** Closes the handle, and returns the previous {@link #state}, or 0 if it was closed already. */
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

    /** Refuses if the handle is closed: enough for methods that need no native call. */
    void check(String method) {
        if (isClosed()) {
            throw closed(method);
        }
    }

    DevExchangeException closed(String method) {
        return new DevExchangeException(Status.CLOSED, method + ": the " + kind.noun + " is closed");
    }

    /**
     * Gives up the reference of an owner that was collected. Like a finalizer, it only queues; the thread of the queue
     * releases.
     */
    void giveUp() {
        if (shut() == OPEN) {
            ReleaseQueue.giveUp(token());
        }
    }
}
