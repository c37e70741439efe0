package dev.devexchange;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Flow;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Makes each allocation of the library fail, and each Java callback throw. Each time there must be an exception,
 * nothing is taken, and everything is released once.
 */
final class FaultsScenario {
    private static final Duration PATIENCE = Duration.ofMinutes(2);

    private FaultsScenario() {}

    public static void main(String[] arguments) throws Exception {
        System.load(arguments[0]);
        DevExchange.outstanding();
        // The name of the library: as given to the loader, or as unpacked from the jar.
        require(Corpus.installFaults("libdevexchange_jni.so") + Corpus.installFaults("devexchange-") > 0, "no library");
        long allocations = 0;
        for (long i : Corpus.cases()) {
            // Without memory, no exception can be made, so only good input is imported, and one allocation fails at a
            // time. Nor can a text of Java, such as the address of an exporter, be read: docs/reliability.md.
            boolean hasAddress = Corpus.text(i, "kind").startsWith("ipc_");
            if (Corpus.text(i, "status").isEmpty() && !hasAddress) {
                // Makes now what is made only once, such as the list of drivers.
                Corpus.run(i);
                allocations += AllocationFaults.eachFault(nth -> Corpus.run(i, Corpus.Fault.memory(nth, false)));
            }
        }
        allocations += AllocationFaults.all();
        long callbacks = 0;
        for (Scene scene : List.<Scene>of(
                FaultsScenario::aManager, FaultsScenario::aStream, FaultsScenario::owners, FaultsScenario::aFlow)) {
            callbacks += eachCallback(scene);
        }
        callbacks += ForeignFaults.all();
        System.out.println("faults: " + allocations + " allocations, " + callbacks + " callbacks");
    }

    private static void require(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    // --- callbacks ---

    /** Counts the callbacks; the one whose turn it is throws after its work. */
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

    /** A scene that has callbacks. */
    private interface Scene {
        void play(Callbacks callbacks) throws Exception;
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

    /** Objects that their last user releases, possibly outside of Java. */
    private static void owners(Callbacks callbacks) {
        try (Tensor matrix = Tensor.create(Direct.room(48), DType.FLOAT64, new long[] {2, 3}, callbacks.living());
                Tensor shared = matrix.share()) {
            Dlpack.release(matrix.exportShare());
            Dlpack.releaseLegacy(shared.exportMoveLegacy(DlpackRequest.DEFAULT));
        }
        try (Tensor taken = Tensor.importDlpack(
                        Tensor.create(Direct.room(8), DType.FLOAT64, new long[] {1}, callbacks.living())
                                .exportMove());
                Batch column = taken.toColumn("x", Copy.NEVER)) {
            column.share().close();
        }
    }

    /** A publisher and a subscriber, with an asynchronous stream between them. */
    private static void aFlow(Callbacks callbacks) throws Exception {
        try (Tensor matrix = Tensor.allocate(Device.CPU, DType.FLOAT64, new long[] {2, 3}, null);
                Batch table = matrix.toBatch(List.of(), Copy.IF_NEEDED);
                Schema schema = table.schema();
                AsyncReader reader = AsyncReader.create();
                AsyncWriter writer = AsyncWriter.create(reader.handlerAddress(), schema, DeviceType.CPU)) {
            Subscriber subscriber = new Subscriber(callbacks);
            reader.subscribe(subscriber);
            writer.onSubscribe(new ForeignFaults.Three(table, writer, callbacks::ask));
            require(subscriber.over.await(PATIENCE.toSeconds(), TimeUnit.SECONDS), "the stream does not end");
            writer.completion().toCompletableFuture().get(PATIENCE.toSeconds(), TimeUnit.SECONDS);
        } catch (ExecutionException e) {
            require(e.getCause().getMessage().equals("as asked"), e.toString());
            callbacks.told += 1;
        }
    }

    /** Takes two batches at a time, until it is told of the end or throws. */
    private static final class Subscriber implements Flow.Subscriber<Batch> {
        final CountDownLatch over = new CountDownLatch(1);
        private final Callbacks callbacks;
        private Flow.Subscription subscription;

        Subscriber(Callbacks callbacks) {
            this.callbacks = callbacks;
        }

        @Override
        public void onSubscribe(Flow.Subscription given) {
            subscription = given;
            subscription.request(2);
            ask();
        }

        @Override
        public void onNext(Batch batch) {
            batch.close();
            subscription.request(1);
            ask();
        }

        @Override
        public void onError(Throwable thrown) {
            over.countDown();
            callbacks.ask();
        }

        @Override
        public void onComplete() {
            ask();
            over.countDown();
        }

        private void ask() {
            try {
                callbacks.ask();
            } catch (IllegalStateException e) {
                over.countDown();
                throw e;
            }
        }
    }

    /** Plays a scene again and again, until no callback throws any more; returns how many threw. */
    private static int eachCallback(Scene scene) throws Exception {
        for (int nth = 1; ; nth++) {
            Callbacks callbacks = new Callbacks(nth);
            scene.play(callbacks);
            require(ReleaseQueue.flush(PATIENCE), "the release queue does not move");
            // The last references to an asynchronous stream are given up on a thread of the library.
            for (int i = 0; i < 100_000 && DevExchange.outstanding() != 0; i++) {
                Thread.sleep(1);
            }
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
