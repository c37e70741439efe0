package dev.devexchange;

/**
 * One reference to a tensor or a batch, and what that is: asked for by whoever first wants to know, as it is often only
 * handed on, and then known to Java.
 *
 * @param <S> the class that it is of
 * @param <T> what Java knows of it
 */
abstract class Held<S, T> extends Owned<S> {
    /** What it is, once somebody asked. */
    private volatile T known;

    Held(Handle.Kind kind) {
        super(kind);
    }

    /** Asks the native library what it is. The caller is inside. */
    abstract T describe(long address);

    /** What it is; {@code method} is for the message if it is closed. */
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

    /** As {@link #is}, of a caller that is inside: whoever closes it meanwhile comes later. */
    final T isInside() {
        T is = known;
        if (is == null) {
            is = describe(handle.address());
            known = is;
        }
        return is;
    }

    /** Has it looked at anew when it is asked next: what is known of it is not so any more. */
    void forget() {
        known = null;
    }

    /** A native call that writes to an address what it says of a handle. */
    interface Ask {
        void accept(long handle, long address);
    }

    /** How it can be had as something else. */
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

    /** Puts it into the order of a stream. */
    final void order(String method, DeviceStream stream, DeviceStream.Order order) {
        long address = enter(method);
        try {
            stream.order(method, address, order);
        } finally {
            exit();
        }
    }

    /** As {@link #order}, while nobody else uses it, of what changes when the data is there. */
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
