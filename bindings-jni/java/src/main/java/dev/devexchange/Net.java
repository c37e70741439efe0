package dev.devexchange;

import java.lang.ref.Reference;
import java.lang.ref.ReferenceQueue;
import java.util.concurrent.atomic.AtomicReferenceArray;

/**
 * What holds every open {@link Handle}, so that one whose owner is collected without being closed is found. A {@code
 * Cleaner} does the same, but each of its registrations takes a lock twice and makes two objects: most handles are
 * closed soon, so here a handle goes to a free place of its thread's and leaves it without a lock.
 */
final class Net {
    /** Threads share a row of places only if there are more of them than rows. */
    private static final int ROWS = 16;

    private static final int PLACES_OF_ROW = 64;

    private static final AtomicReferenceArray<Handle> PLACES = new AtomicReferenceArray<>(ROWS * PLACES_OF_ROW);

    /**
     * Those that found their row full, of a program that keeps many open: for each row a ring, which is its own lock.
     * To enter it takes no memory.
     */
    private static final Handle[] RINGS = new Handle[ROWS];

    /** Where the handles come to whose owners are gone, and the views whose buffers are. */
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

    /** Holds a handle until {@link #drop}; returns what that is to be told. Takes no memory. */
    static int hold(Handle handle) {
        // A class of the user's may have its own idea of a thread's number.
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
        // A place is not negative.
        return ~row;
    }

    /** Holds it no more, which is done once. */
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
                // Nobody has a reason to.
            } catch (Throwable thrown) {
                Background.log("a handle that nobody closed could not be given up", thrown);
            }
        }
    }
}
