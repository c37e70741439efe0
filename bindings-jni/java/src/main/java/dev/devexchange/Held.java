package dev.devexchange;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;

/**
 * One reference to a tensor or a batch, and what that is: asked for by whoever first wants to know, as it is often only
 * handed on, and then known to Java.
 *
 * @param <T> what Java knows of it
 */
abstract class Held<T> implements AutoCloseable {
    private final Handle handle;

    /** What it is, once somebody asked. */
    private volatile T known;

    Held(Handle.Kind kind) {
        handle = new Handle(this, kind);
    }

    /** The reference that Java was just given. */
    final void hold(long address) {
        handle.hold(address);
        Reference.reachabilityFence(this);
    }

    /** Asks the native library what it is. The caller is inside. */
    abstract T describe(long address);

    /** What it is; {@code method} is for the message if it is closed. */
    final T is(String method) {
        T is = known;
        if (is != null) {
            handle.check(method);
            return is;
        }
        enter(method);
        try {
            return isInside();
        } finally {
            exit();
        }
    }

    /** As {@link #is}, of a caller that is inside: whoever closes it meanwhile comes later. */
    final T isInside() {
        T is = known;
        if (is == null) {
            is = describe(handle.address());
            known = is;
        }
        return is;
    }

    /** What {@link #enter} returned; the caller is inside. */
    final long handleAddress() {
        return handle.address();
    }

    /** Has it looked at anew when it is asked next: what is known of it is not so any more. */
    void forget() {
        known = null;
    }

    final long enter(String method) {
        return handle.enter(method);
    }

    /** A buffer in native order over memory of this, which keeps this reachable. The caller is inside. */
    final ByteBuffer view(long address, long bytes) {
        return View.of(handle, this, address, bytes);
    }

    final void exit() {
        handle.exit();
        Reference.reachabilityFence(this);
    }

    final void check(String method) {
        handle.check(method);
    }

    /** A native call that writes to an address what it says of a handle. */
    interface Ask {
        void accept(long handle, long address);
    }

    /** How it can be had as something else. */
    final Plan plan(String method, Ask ask) {
        long address = enter(method);
        try {
            Scratch scratch = Scratch.get();
            ask.accept(address, scratch.address);
            return Plan.read(scratch.buffer, 0);
        } finally {
            exit();
        }
    }

    /** Puts it into the order of a stream. */
    final void order(String method, DeviceStream stream, DeviceStream.Order order) {
        long address = enter(method);
        try {
            stream.order(method, address, order);
        } finally {
            exit();
        }
    }

    /** As {@link #order}, while nobody else uses it, of what changes when the data is there. */
    final void orderAlone(String method, DeviceStream stream, DeviceStream.Order order) {
        long address = handle.enterAlone(method);
        try {
            stream.order(method, address, order);
            forget();
        } finally {
            handle.exitAlone();
            Reference.reachabilityFence(this);
        }
    }

    /** As {@link Handle#moved}. */
    final void moved(String method, Handle.Kind struct, long address) {
        handle.moved(method, struct, address);
    }

    /** As {@link Handle#tryAlone}, of a call that may give the reference away. */
    final long enterMove(String method) {
        return handle.tryAlone(method);
    }

    /** Ends such a call. */
    final void exitMove(boolean moved) {
        if (moved) {
            handle.exitMoved();
        } else {
            handle.exitAlone();
        }
        Reference.reachabilityFence(this);
    }

    /** Closes it, and says whether it was this call that did. */
    final boolean closeOnce() {
        return handle.close();
    }

    final DevExchangeException closed(String method) {
        return handle.closed(method);
    }

    // What is public is not final: so the public classes get methods of their own for it, as reflection needs them.

    /** {@return whether it was closed or moved} */
    public boolean isClosed() {
        return handle.isClosed();
    }

    /** Gives up this reference. Closing twice is fine. */
    @Override
    public void close() {
        handle.close();
    }
}
