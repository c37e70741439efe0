package dev.devexchange;

import java.lang.ref.Reference;
import java.lang.ref.ReferenceQueue;
import java.util.concurrent.atomic.AtomicReferenceArray;

/**
 * Holds every open {@link Handle}, so that a handle whose owner is collected without being closed is found. A {@code
 * Cleaner} does the same, but each registration with it takes a lock twice and makes two objects. Most handles are
 * closed soon, so here a handle takes a free place in the row of its thread, and leaves it, without a lock.
 */
final class Net {
    /** The number of rows of places. Threads share a row only if there are more threads than rows. */
    private static final int ROWS = 16;

    private static final int PLACES_OF_ROW = 64;

    private static final AtomicReferenceArray<Handle> PLACES = new AtomicReferenceArray<>(ROWS * PLACES_OF_ROW);

    /**
     * The handles that found their row full, when a program keeps many open: for each row a ring, whose head is its
     * lock. Entering a ring allocates nothing.
     */
    private static final Handle[] RINGS = new Handle[ROWS];

    /** The queue of handles whose owners were collected, and of views whose buffers were. */
    static final ReferenceQueue<Object> COLLECTED = new ReferenceQueue<>();

    static {
        for (int row = 0; row < ROWS; row++) {
            Handle ring = new Handle(null, null);
            ring.next = ring;
            ring.previous = ring;
            RINGS[row] = ring;
        }
        Background.thread("devexchange-net", Net::watch).start();
    }

    private Net() {}

    /** Holds a handle until {@link #drop}; returns the place to pass to it. Allocates nothing. */
    static int hold(Handle handle) {
        // A user's subclass of {@code Thread} may return any number as its id.
        int row = Math.floorMod(Thread.currentThread().getId(), ROWS);
        int first = row * PLACES_OF_ROW;
        for (int place = first; place < first + PLACES_OF_ROW; place++) {
            if (PLACES.getPlain(place) == null && PLACES.compareAndSet(place, null, handle)) {
                return place;
            }
        }
        Handle ring = RINGS[row];
        synchronized (ring) {
            handle.previous = ring;
            handle.next = ring.next;
            ring.next.previous = handle;
            ring.next = handle;
        }
        // Negative, unlike a place.
        return ~row;
    }

    /** Stops holding a handle. Must be called once. */
    static void drop(Handle handle, int place) {
        if (place >= 0) {
            PLACES.setRelease(place, null);
            return;
        }
        synchronized (RINGS[~place]) {
            handle.previous.next = handle.next;
            handle.next.previous = handle.previous;
            handle.next = null;
            handle.previous = null;
        }
    }

    private static void watch() {
        while (true) {
            try {
                Reference<?> gone = COLLECTED.remove();
                if (gone instanceof Handle handle) {
                    handle.giveUp();
                } else {
                    ((View) gone).drop();
                }
            } catch (InterruptedException ignored) {
                // Nobody has a reason to interrupt this thread.
            } catch (Throwable thrown) {
                Background.log("a handle that nobody closed could not be given up", thrown);
            }
        }
    }
}
