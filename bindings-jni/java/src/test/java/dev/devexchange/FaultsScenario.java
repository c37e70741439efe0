package dev.devexchange;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Each allocation of the library fails, and each callback of Java's throws. Then there is an exception, nothing is taken,
 * and everything is released once.
 */
final class FaultsScenario {
    private static final Duration PATIENCE = Duration.ofSeconds(30);

    private FaultsScenario() {}

    public static void main(String[] arguments) throws Exception {
        System.load(arguments[0]);
        DevExchange.outstanding();
        // As the loader was told, or out of the jar.
        require(Corpus.installFaults("libdevexchange_jni.so") + Corpus.installFaults("devexchange-") > 0, "no library");
        long allocations = 0;
        for (long i : Corpus.cases()) {
            String kind = Corpus.text(i, "kind");
            // What is kept of a connection or a reader is not made without memory: docs/reliability.md.
            // Nor is an exception, so only what is good is imported, and one allocation fails at a time.
            boolean good = Corpus.text(i, "status").isEmpty();
            if (good && !kind.startsWith("ipc_") && !kind.equals("async")) {
                // What is made once, such as the list of drivers, is made now.
                Corpus.run(i);
                allocations += AllocationFaults.eachFault(nth -> Corpus.run(i, Corpus.Fault.memory(nth, false)));
            }
        }
        allocations += AllocationFaults.all();
        long callbacks = eachCallback(FaultsScenario::aManager) + eachCallback(FaultsScenario::aStream);
        callbacks += ForeignFaults.all();
        System.out.println("faults: " + allocations + " allocations, " + callbacks + " callbacks");
    }

    private static void require(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    // --- callbacks ---

    /** Counts what is called; the one whose turn it is throws, after it did its work. */
    private static final class Callbacks implements Allocator {
        final int throwing;
        final AtomicInteger calls = new AtomicInteger();
        final AtomicInteger live = new AtomicInteger();
        /** Exceptions that came out of a call. */
        int told;

        Callbacks(int throwing) {
            this.throwing = throwing;
        }

        void ask() {
            if (calls.incrementAndGet() == throwing) {
                throw new IllegalStateException("as asked");
            }
        }

        Runnable living() {
            live.incrementAndGet();
            return () -> {
                live.decrementAndGet();
                ask();
            };
        }

        void attempt(Runnable act) {
            try {
                act.run();
            } catch (DevExchangeException e) {
                require(e.getMessage().contains("as asked"), e.toString());
                told++;
            }
        }

        @Override
        public void initialize(int deviceId) {
            ask();
        }

        @Override
        public Allocation allocate(MemoryRequest request) {
            ask();
            return Allocation.of(Direct.room(8), living());
        }

        @Override
        public MemoryInfo memoryInfo(int deviceId) {
            ask();
            return new MemoryInfo(1, 2);
        }

        @Override
        public void reset(int deviceId) {
            ask();
        }

        @Override
        public void trim(int deviceId, long keep) {
            ask();
        }
    }

    /** Something that calls back. */
    private interface Scene {
        void play(Callbacks callbacks);
    }

    private static void aManager(Callbacks callbacks) {
        MemoryRequest eight = MemoryRequest.of(Device.CPU, 8);
        try (MemoryManager manager = MemoryManager.of(callbacks, callbacks.living())) {
            callbacks.attempt(() -> manager.initialize(0));
            callbacks.attempt(() -> manager.allocate(eight).close());
            callbacks.attempt(() -> manager.allocate(eight).close());
            callbacks.attempt(() -> manager.memoryInfo(0));
            callbacks.attempt(() -> manager.trim(0, 0));
            callbacks.attempt(() -> manager.reset(0));
        }
    }

    private static void aStream(Callbacks callbacks) {
        try (Tensor matrix = Tensor.allocate(Device.CPU, DType.FLOAT64, new long[] {2, 3}, null);
                Batch table = matrix.toBatch(List.of(), Copy.IF_NEEDED);
                Schema schema = table.schema()) {
            AtomicInteger left = new AtomicInteger(3);
            BatchStream.Source source = () -> {
                callbacks.ask();
                return left.getAndDecrement() > 0 ? table.share() : null;
            };
            try (BatchStream stream = BatchStream.of(schema, DeviceType.CPU, source, callbacks.living())) {
                callbacks.attempt(() -> {
                    for (Batch next = stream.next(); next != null; next = stream.next()) {
                        next.close();
                    }
                });
            }
        }
    }

    /** Plays a scene again and again, until no callback throws any more; how many did. */
    private static int eachCallback(Scene scene) throws InterruptedException {
        for (int nth = 1; ; nth++) {
            Callbacks callbacks = new Callbacks(nth);
            scene.play(callbacks);
            require(ReleaseQueue.flush(PATIENCE), "the release queue does not move");
            require(DevExchange.outstanding() == 0, nth + ": " + DevExchange.ledger());
            require(callbacks.live.get() == 0, nth + ": " + callbacks.live + " are not released");
            if (callbacks.calls.get() < nth) {
                require(callbacks.told == 0, nth + ": an exception without a reason");
                return nth - 1;
            }
            require(callbacks.told <= 1, nth + ": " + callbacks.told + " exceptions");
        }
    }
}
