package dev.devexchange;

import java.lang.ref.WeakReference;
import java.util.function.BiConsumer;
import java.util.function.Consumer;

/**
 * What the token of a reader or writer stands for: "look again". It keeps them from being collected only while somebody
 * counts on them.
 */
final class Bell<T> implements Dispatcher.Task {
    private final WeakReference<T> of;
    private final Consumer<T> ring;
    private final BiConsumer<T, Throwable> giveUp;

    @SuppressWarnings("unused") // It is there to be held.
    private volatile T kept;

    /** {@code ring} has it looked after soon; {@code giveUp} is told that this cannot be. Neither holds {@code of}. */
    Bell(T of, Consumer<T> ring, BiConsumer<T, Throwable> giveUp) {
        this.of = new WeakReference<>(of);
        this.ring = ring;
        this.giveUp = giveUp;
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
        T known = of.get();
        if (known != null) {
            giveUp.accept(known, why);
        }
    }
}
