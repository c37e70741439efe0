package dev.devexchange;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;

/**
 * One reference to a native thing, which somebody closes. A native call may be the last use of this that the JVM knows
 * of: so whatever ends one keeps this reachable until then, and {@link Net} does not find it meanwhile.
 *
 * @param <S> the class that it is of
 */
abstract class Owned<S> implements AutoCloseable {
    final Handle handle;

    Owned(Handle.Kind kind) {
        handle = new Handle(this, kind);
    }

    /** Of the reference that Java was just given. Takes no memory. */
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
    }

    /** A buffer in native order over memory of this, which keeps this reachable. The caller is inside. */
    final ByteBuffer view(long address, long bytes) {
        return View.of(handle, this, address, bytes);
    }

    /** Closes it, and says whether it was this call that did. */
    final boolean closeOnce() {
        boolean first = handle.close();
        Reference.reachabilityFence(this);
        return first;
    }

    // What is public is not final: so the public classes get methods of their own for it, as reflection needs them.

    /** {@return whether it was closed} */
    public boolean isClosed() {
        return handle.isClosed();
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
