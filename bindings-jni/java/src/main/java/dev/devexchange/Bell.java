package dev.devexchange;

import java.lang.ref.WeakReference;
import java.util.function.Consumer;

/**
 * The task behind the token of a reader or writer: "look again". It keeps the reader or writer reachable only while
 * somebody depends on it.
 */
final class Bell<T> implements Dispatcher.Task {
    private final WeakReference<T> of;
    private final Consumer<T> ring;

    @SuppressWarnings("unused") // Only keeps its value reachable.
    private volatile T kept;

    /**
     * Makes a bell for {@code of}. {@code ring} schedules a look at it, or throws if that is impossible; it must not
     * refer to {@code of}.
     */
    Bell(T of, Consumer<T> ring) {
        this.of = new WeakReference<>(of);
        this.ring = ring;
    }

    void keep(T of) {
        kept = of;
    }

    void letGo() {
        kept = null;
    }

    /** Whether the reader or writer was collected. */
    boolean isForgotten() {
        return of.refersTo(null);
    }

    @Override
    public void start(long token) {
        T known = of.get();
        if (known != null) {
            ring.accept(known);
        }
    }

    @Override
    public void failed(long token, Throwable why) {
        Background.log("an asynchronous stream was not looked after", why);
    }
}
