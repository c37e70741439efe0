package dev.devexchange;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;

/**
 * One reference to a native object, to be closed. A call may be the last use of this that the JVM knows of. Therefore
 * every method that ends a use or looks at the handle keeps this reachable until then, so that {@link Net} does not
 * close it during the call.
 *
 * @param <S> the subclass
 */
abstract class Owned<S> implements AutoCloseable {
    final Handle handle;

    Owned(Handle.Kind kind) {
        handle = new Handle(this, kind);
    }

    /** Takes the reference that Java was just given. Allocates nothing. */
    @SuppressWarnings("unchecked")
    final S of(long address) {
        handle.hold(address);
        Reference.reachabilityFence(this);
        return (S) this;
    }

    final long enter(String method) {
        return handle.enter(method);
    }

    final void exit() {
        handle.exit();
        Reference.reachabilityFence(this);
    }

    final void exitAlone() {
        handle.exitAlone();
        Reference.reachabilityFence(this);
    }

    final void check(String method) {
        handle.check(method);
        Reference.reachabilityFence(this);
    }

    /** Same as {@link Handle#moved}. */
    final void moved(String method, Handle.Kind struct, long exported) {
        handle.moved(method, struct, exported);
        Reference.reachabilityFence(this);
    }

    /** A buffer in native order over memory of this, which keeps this reachable. The caller must be inside. */
    final ByteBuffer view(long address, long bytes) {
        return View.of(handle, this, address, bytes);
    }

    /** Closes this; returns whether it was open. */
    final boolean closeOnce() {
        boolean first = handle.close();
        Reference.reachabilityFence(this);
        return first;
    }

    // The public methods are not final, so that the public classes can have their own, as reflection needs them.

    /** {@return whether it was closed} */
    public boolean isClosed() {
        boolean closed = handle.isClosed();
        Reference.reachabilityFence(this);
        return closed;
    }

    /** Gives up this reference. Closing twice is fine. */
    @Override
    public void close() {
        closeOnce();
    }

    /** {@return whether it is open} */
    @Override
    public String toString() {
        return getClass().getSimpleName() + (isClosed() ? " (closed)" : " (open)");
    }
}
