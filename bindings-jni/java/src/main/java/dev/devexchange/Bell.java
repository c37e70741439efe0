package dev.devexchange;

import java.lang.ref.WeakReference;
import java.util.function.Consumer;

/**
 * What the token of a reader or writer stands for: "look again". It keeps them from being collected only while somebody
 * counts on them.
 */
final class Bell<T> implements Dispatcher.Task {
    private final WeakReference<T> of;
    private final Consumer<T> ring;

    @SuppressWarnings("unused") // It is there to be held.
    private volatile T kept;

    /** {@code ring} has it looked after soon, or says that this cannot be. It does not hold {@code of}. */
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
