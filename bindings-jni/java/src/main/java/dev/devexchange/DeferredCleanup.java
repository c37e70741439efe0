package dev.devexchange;

/** As long as this is open, a {@link MemoryManager} defers cleanup ({@link MemoryManager#deferCleanup}). */
public final class DeferredCleanup extends Owned<DeferredCleanup> implements AutoCloseable {
    private final MemoryManager manager;

    DeferredCleanup(MemoryManager manager) {
        super(Handle.Kind.DEFERRED);
        this.manager = manager;
    }

    /** Ends the deferral; with the last one, what was held back is given back. Closing twice is fine. */
    @Override
    public void close() {
        // The end asks the manager, too.
        manager.waiting(this::closeOnce);
    }
}
