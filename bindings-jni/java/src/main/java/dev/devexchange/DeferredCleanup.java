package dev.devexchange;

import java.lang.ref.Reference;

/** As long as this is open, a {@link MemoryManager} defers cleanup ({@link MemoryManager#deferCleanup}). */
public final class DeferredCleanup implements AutoCloseable {
    private final Handle handle;
    private final MemoryManager manager;

    DeferredCleanup(MemoryManager manager) {
        this.manager = manager;
        handle = new Handle(this, Handle.Kind.DEFERRED);
    }

    /** Of a reference that Java was just given. */
    DeferredCleanup of(long raw) {
        handle.hold(raw);
        return this;
    }

    /** {@return whether it was closed} */
    public boolean isClosed() {
        return handle.isClosed();
    }

    /** Ends the deferral; with the last one, what was held back is given back. Closing twice is fine. */
    @Override
    public void close() {
        // The end asks the manager, too.
        manager.waiting(handle::close);
        Reference.reachabilityFence(this);
    }

    /** {@return whether it is open} */
    @Override
    public String toString() {
        return isClosed() ? "DeferredCleanup (closed)" : "DeferredCleanup (open)";
    }
}
