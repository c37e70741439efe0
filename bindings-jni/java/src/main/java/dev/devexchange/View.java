package dev.devexchange;

import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * Keeps the owner of a handle reachable as long as a buffer over its memory is reachable: {@link Net} refers to the
 * handle, the handle to its views, and a view to the owner until its buffer is collected. A closed handle is no longer
 * in the net, so all of this becomes garbage at once.
 */
final class View extends WeakReference<ByteBuffer> {
    private final Handle handle;
    private final long address;
    private final long bytes;

    /** Only kept reachable. */
    @SuppressWarnings("unused")
    private Object owner;

    // Neighbours in the list of the handle, which is the lock.
    View next;
    private View previous;

    private View(ByteBuffer buffer, Handle handle, Object owner, long address, long bytes) {
        super(buffer, Net.COLLECTED);
        this.handle = handle;
        this.owner = owner;
        this.address = address;
        this.bytes = bytes;
    }

    /** A buffer in native order over memory of a handle. The caller must be inside. */
    static ByteBuffer of(Handle handle, Object owner, long address, long bytes) {
        synchronized (handle) {
            View newest = handle.views;
            boolean same = newest != null && newest.address == address && newest.bytes == bytes;
            ByteBuffer buffer = same ? newest.get() : null;
            if (buffer == null) {
                // Through JNI with either backend: a segment made from a segment's buffer refers to that segment, not
                // the buffer.
                buffer = bytes == 0 ? ByteBuffer.allocateDirect(0) : Native.view(address, bytes);
                View view = new View(buffer, handle, owner, address, bytes);
                view.next = newest;
                if (newest != null) {
                    newest.previous = view;
                }
                handle.views = view;
            }
            // Buffers derived from a buffer refer to it. Only duplicates go out, so the position of this one never
            // changes.
            return buffer.duplicate().order(ByteOrder.nativeOrder());
        }
    }

    /** Called when the buffer and everything derived from it are collected. */
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
