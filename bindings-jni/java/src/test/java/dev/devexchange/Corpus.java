package dev.devexchange;

import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Flow;
import java.util.concurrent.TimeUnit;
import java.util.stream.LongStream;

/**
 * The corpus of bad input ({@code tests/corpus}) through the Java API. The library of the corpus knows the cases and
 * what becomes of the structs; this imports them and compares the errors. It also runs in a JVM without JUnit.
 */
final class Corpus {
    static final Duration PATIENCE = Duration.ofMinutes(2);

    private Corpus() {}

    static native long count();

    static native long countForJava();

    static native boolean isForJava(long i);

    static native String text(long i, String what);

    static native long batches(long i);

    static native long make(long i);

    static native long address(long made);

    static native long schema(long made);

    static native String listens(long made);

    static native void drive(long made, long handler);

    static native String after(long made, boolean refused);

    static native String end(long made);

    static native int installFaults(String library);

    static native void arm(long nth, boolean fromThenOn);

    static native long disarm();

    static native void armCallback(long nth, int how);

    static native boolean disarmCallback();

    static native int callbackStatus();

    static native String callbackSays();

    static native long consumerMake();

    static native long consumerHandler(long consumer);

    static native String consumerEnd(long consumer);

    /** What fails while a case runs: the nth allocation (0: none), or the nth callback of its producer in some way. */
    record Fault(long nth, boolean isCallback, int how) {
        static final Fault NONE = new Fault(0, false, 0);

        static Fault memory(long nth, boolean fromThenOn) {
            return new Fault(nth, false, fromThenOn ? 1 : 0);
        }

        static Fault callback(long nth, int how) {
            return new Fault(nth, true, how);
        }

        void arm() {
            if (isCallback) {
                armCallback(nth, how);
            } else if (nth > 0) {
                Corpus.arm(nth, how != 0);
            }
        }

        long disarm() {
            return isCallback ? (disarmCallback() ? 1 : 0) : Corpus.disarm();
        }
    }

    /** Builds the library of the corpus (cargo does nothing if it is up to date) and the C code that calls it. */
    static Path compile(Path directory) throws IOException, InterruptedException {
        Path corpus = Path.of(System.getProperty("devexchange.root"), "tests/corpus");
        Process build = new ProcessBuilder("sh", corpus.resolve("build.sh").toString())
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
        String built = new String(build.getInputStream().readAllBytes()).strip();
        require(build.waitFor() == 0, "the corpus could not be built");
        return Cc.shared("corpus.c", directory, "-I" + corpus, built);
    }

    /** The numbers of all cases to run. */
    static List<Long> cases() {
        List<Long> cases =
                LongStream.range(0, count()).filter(Corpus::isForJava).boxed().toList();
        require(cases.size() == countForJava() && cases.size() > 300, cases.size() + " cases");
        return cases;
    }

    /** Runs a case; an error names it. */
    static void run(long i) throws InterruptedException {
        run(i, Fault.NONE);
    }

    /** Runs a case with a fault; returns the number of failures. */
    static long run(long i, Fault fault) throws InterruptedException {
        try {
            return runMade(i, make(i), fault);
        } catch (AssertionError e) {
            throw new AssertionError(text(i, "name") + ", " + fault + ": " + e.getMessage(), e);
        }
    }

    private static long runMade(long i, long made, Fault fault) throws InterruptedException {
        String stage = "import";
        Seen seen = new Seen();
        DevExchangeException error = null;
        String wrong = null;
        fault.arm();
        try (Imported imported = importing(text(i, "kind"), made)) {
            wrong = after(made, false);
            stage = "read";
            imported.read(seen);
        } catch (DevExchangeException e) {
            error = e;
            if (stage.equals("import")) {
                wrong = after(made, true);
            }
        }
        long failed = fault.disarm();
        String left = end(made);
        require(wrong == null, wrong);
        require(left == null, left);
        if (failed > 0 && fault.isCallback()) {
            judgeCallback(error);
        } else if (failed == 0 || error == null || error.status() != Status.OUT_OF_MEMORY) {
            // Without memory, that is the error, wherever it occurs.
            judge(i, error, stage, seen.batches, failed == 0);
        }
        // A reader gives up its last references on a thread of the library.
        long end = System.nanoTime() + PATIENCE.toNanos();
        while (DevExchange.outstanding() != 0 && System.nanoTime() < end) {
            require(ReleaseQueue.flush(PATIENCE), "the release queue does not move");
            Thread.sleep(1);
        }
        require(DevExchange.outstanding() == 0, DevExchange.ledger().toString());
        return failed;
    }

    private static void require(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    private static void judge(long i, DevExchangeException error, String stage, long batches, boolean inWords) {
        String status = text(i, "status");
        String says = text(i, "says");
        require(batches == batches(i), batches + " batches, and then " + error);
        if (error == null) {
            require(status.isEmpty(), "it was accepted, but is " + status + ": " + says);
            return;
        }
        boolean right = error.statusName().equals(status) && stage.equals(text(i, "stage"));
        String wrong = error + " at " + stage + "; expected " + status + ": " + says;
        require(right && (!inWords || error.getMessage().contains(says)), wrong);
    }

    /** An error that a failed callback caused. */
    static void judgeCallback(Throwable error) {
        boolean right = error instanceof DevExchangeException known
                && known.status() == callbackStatus()
                && known.getMessage().contains(callbackSays());
        require(right, error + "; expected " + callbackStatus() + ": " + callbackSays());
    }

    /** What was read until reading failed. */
    private static final class Seen {
        long batches;
    }

    /** The result of an import. */
    private interface Imported extends AutoCloseable {
        default void read(Seen seen) throws InterruptedException {}

        @Override
        void close();
    }

    private static Imported importing(String kind, long made) throws InterruptedException {
        long address = address(made);
        return switch (kind) {
            case "schema" -> Schema.importArrow(address)::close;
            case "array" -> batch(Batch.importArrow(address, schema(made)));
            case "device_array" -> batch(Batch.importArrowDevice(address, schema(made)));
            case "stream" -> stream(BatchStream.importArrow(address));
            case "device_stream" -> stream(BatchStream.importArrowDevice(address));
            case "async" -> async(made);
            case "dlpack" -> Tensor.importDlpack(address)::close;
            case "dlpack_legacy" -> Tensor.importDlpackLegacy(address)::close;
            case "cuda_array" -> Tensor.importCudaArray(address, CudaArrayRequest.DEFAULT)::close;
            case "ipc_tensor" -> {
                try (IpcClient client = IpcClient.connect(listens(made))) {
                    yield client.importTensor("t")::close;
                }
            }
            case "ipc_batch" -> {
                try (IpcClient client = IpcClient.connect(listens(made))) {
                    yield batch(client.importBatch("t"));
                }
            }
            default -> throw new AssertionError("there is no import of a " + kind);
        };
    }

    private static Imported batch(Batch batch) {
        return new Imported() {
            @Override
            public void read(Seen seen) {
                Column root = batch.root();
                for (long row = 0; row < root.length(); row++) {
                    root.getObject(row);
                }
            }

            @Override
            public void close() {
                batch.close();
            }
        };
    }

    private static Imported stream(BatchStream stream) {
        return new Imported() {
            @Override
            public void read(Seen seen) {
                for (Batch batch = stream.next(); batch != null; batch = stream.next()) {
                    seen.batches++;
                    batch.close();
                }
            }

            @Override
            public void close() {
                stream.close();
            }
        };
    }

    private static Imported async(long made) throws InterruptedException {
        AsyncReader reader;
        try {
            reader = AsyncReader.create(true, null);
        } catch (DevExchangeException e) {
            drive(made, 0);
            throw e;
        }
        try {
            Taker taker = new Taker();
            reader.subscribe(taker);
            taker.requested.await();
            drive(made, reader.handlerAddress());
            reader.schema(PATIENCE).close();
            return taker.of(reader);
        } catch (DevExchangeException e) {
            reader.close();
            throw e;
        }
    }

    /** Takes at most four batches. */
    private static final class Taker implements Flow.Subscriber<Batch> {
        final CountDownLatch requested = new CountDownLatch(1);
        private final CountDownLatch over = new CountDownLatch(1);
        private volatile Throwable error;
        private volatile long batches;

        @Override
        public void onSubscribe(Flow.Subscription subscription) {
            subscription.request(4);
            requested.countDown();
        }

        @Override
        public void onNext(Batch batch) {
            batches = batches + 1;
            batch.close();
        }

        @Override
        public void onError(Throwable throwable) {
            error = throwable;
            over.countDown();
        }

        @Override
        public void onComplete() {
            over.countDown();
        }

        Imported of(AsyncReader reader) {
            return new Imported() {
                @Override
                public void read(Seen seen) throws InterruptedException {
                    require(over.await(PATIENCE.toSeconds(), TimeUnit.SECONDS), "the stream does not end");
                    seen.batches = batches;
                    if (error instanceof DevExchangeException known) {
                        throw known;
                    }
                    require(error == null, String.valueOf(error));
                }

                @Override
                public void close() {
                    reader.close();
                }
            };
        }
    }
}
