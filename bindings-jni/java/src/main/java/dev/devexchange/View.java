package dev.devexchange;

import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * What keeps a tensor or a batch reachable as long as a buffer over its memory is: {@link Net} has the handle, the
 * handle its views, and a view the owner until its buffer is gone. A closed handle is not in the net any more, and then
 * all of this is garbage at once.
 */
final class View extends WeakReference<ByteBuffer> {
    private final Handle handle;
    private final long address;
    private final long bytes;

    /** Only held. */
    @SuppressWarnings("unused")
    private Object owner;

    // Of the handle, which is the lock.
    private View next;
    private View previous;

    private View(ByteBuffer buffer, Handle handle, Object owner, long address, long bytes) {
        super(buffer, Net.COLLECTED);
        this.handle = handle;
        this.owner = owner;
        this.address = address;
        this.bytes = bytes;
    }

    /** A buffer in native order over memory of a handle's; whoever calls this is inside. */
    static ByteBuffer of(Handle handle, Object owner, long address, long bytes) {
        synchronized (handle) {
            View newest = handle.views;
            boolean same = newest != null && newest.address == address && newest.bytes == bytes;
            ByteBuffer buffer = same ? newest.get() : null;
            if (buffer == null) {
                // By JNI whatever the backend is: a memory segment of a buffer that is a segment's keeps that, not the buffer.
                buffer = bytes == 0 ? ByteBuffer.allocateDirect(0) : Native.view(address, bytes);
                View view = new View(buffer, handle, owner, address, bytes);
                view.next = newest;
                if (newest != null) {
                    newest.previous = view;
                }
                handle.views = view;
            }
            // What is made of a buffer refers to it. Nobody else has this one, so its position stays.
            return buffer.duplicate().order(ByteOrder.nativeOrder());
        }
    }

    /** The buffer is gone, and all that was made of it. */
    void drop() {
        synchronized (handle) {
            if (previous == null) {
                handle.views = next;
            } else {
                previous.next = next;
            }
            if (next != null) {
                next.previous = previous;
            }
            owner = null;
        }
    }
}
