package dev.devexchange;

/**
 * One reference to a tensor or a batch, and its description. The description is read when it is first asked for,
 * because many tensors and batches are only handed on, and is then kept in Java.
 *
 * @param <S> the subclass
 * @param <T> the class of the description
 */
abstract class Held<S, T> extends Owned<S> {
    /** The description; null until it is asked for. */
    private volatile T known;

    Held(Handle.Kind kind) {
        super(kind);
    }

    /** Reads the description from the native library. The caller must be inside. */
    abstract T describe(long address);

    /** The description; {@code method} is for the message if this is closed. */
    final T is(String method) {
        T is = known;
        if (is != null) {
            check(method);
            return is;
        }
        enter(method);
        try {
            return isInside();
        } finally {
            exit();
        }
    }

    /** Same as {@link #is}, for a caller that is inside: a close at the same time counts as later. */
    final T isInside() {
        T is = known;
        if (is == null) {
            is = describe(handle.address());
            known = is;
        }
        return is;
    }

    /** Drops the description, which is no longer true, so that it is read anew. */
    void forget() {
        known = null;
    }

    /** A native call that writes its answer about a handle to an address. */
    interface Ask {
        void accept(long handle, long address);
    }

    /** Makes the plan of a conversion. */
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

    /** Orders this on a stream. */
    final void order(String method, DeviceStream stream, DeviceStream.Order order) {
        long address = enter(method);
        try {
            stream.order(method, address, order);
        } finally {
            exit();
        }
    }

    /** Same as {@link #order}, but while nobody else uses this, for a call that changes when the data is ready. */
    final void orderAlone(String method, DeviceStream stream, DeviceStream.Order order) {
        long address = handle.enterAlone(method);
        try {
            stream.order(method, address, order);
            forget();
        } finally {
            exitAlone();
        }
    }

    /** {@return whether it was closed or moved} */
    @Override
    public boolean isClosed() {
        return super.isClosed();
    }
}
