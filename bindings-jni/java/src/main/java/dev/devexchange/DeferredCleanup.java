package dev.devexchange;

/** A scope in which a {@link MemoryManager} defers cleanup ({@link MemoryManager#deferCleanup}). */
public final class DeferredCleanup extends Owned<DeferredCleanup> implements AutoCloseable {
    private final MemoryManager manager;

    DeferredCleanup(MemoryManager manager) {
        super(Handle.Kind.DEFERRED);
        this.manager = manager;
    }

    /** Ends the scope; when the last scope ends, the memory that was held back is given back. Closing twice is fine. */
    @Override
    public void close() {
        // The end of the scope calls the manager, too.
        manager.waiting(this::closeOnce);
    }
}
