package dev.devexchange;

import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Flow;
import java.util.concurrent.TimeUnit;

/** Foreign callbacks that Java meets: each fails once in each way. */
final class ForeignFaults {
    /** How a callback fails: with a code, with a text, or by what it gives or asks for; a consumer may also cancel. */
    private static final int WAYS = 3;

    private static final int CANCELS = 3;

    private ForeignFaults() {}

    /** The number of failures. */
    static long all() throws Exception {
        long failed = 0;
        for (long i : Corpus.cases()) {
            String kind = Corpus.text(i, "kind");
            boolean good = Corpus.text(i, "status").isEmpty();
            for (int how = 0; good && (kind.contains("stream") || kind.equals("async")) && how < WAYS; how++) {
                for (long nth = 1; Corpus.run(i, Corpus.Fault.callback(nth, how)) > 0; nth++) {
                    failed++;
                }
            }
        }
        try (Tensor matrix = Tensor.allocate(Device.CPU, DType.FLOAT64, new long[] {2, 3}, null);
                Batch table = matrix.toBatch(List.of(), Copy.IF_NEEDED)) {
            for (int how = 0; how <= CANCELS; how++) {
                for (long nth = 1; give(table, nth, how); nth++) {
                    failed++;
                }
            }
        }
        return failed;
    }

    /** Gives a consumer three batches while its nth callback fails; returns whether there were that many callbacks. */
    private static boolean give(Batch table, long nth, int how) throws Exception {
        long consumer = Corpus.consumerMake();
        Throwable error = null;
        Corpus.armCallback(nth, how);
        try (Schema schema = table.schema();
                AsyncWriter writer =
                        AsyncWriter.create(Corpus.consumerHandler(consumer), schema, DeviceType.CPU)) {
            writer.onSubscribe(new Three(table, writer, () -> {}));
            writer.completion().toCompletableFuture().get(2, TimeUnit.MINUTES);
        } catch (ExecutionException e) {
            error = e.getCause();
        }
        boolean failed = Corpus.disarmCallback();
        String wrong = Corpus.consumerEnd(consumer);
        if (wrong != null) {
            throw new AssertionError("callback " + nth + ", " + how + ": " + wrong);
        }
        if (failed && how != CANCELS) {
            Corpus.judgeCallback(error);
        } else if (error != null) {
            throw new AssertionError("callback " + nth + ", " + how, error);
        }
        return failed;
    }

    /** Three batches, as they are asked for. */
    static final class Three implements Flow.Subscription {
        private final Batch table;
        private final AsyncWriter writer;
        private final Runnable called;
        private int left = 3;

        Three(Batch table, AsyncWriter writer, Runnable called) {
            this.table = table;
            this.writer = writer;
            this.called = called;
        }

        @Override
        public synchronized void request(long n) {
            for (long i = 0; i < n && left > 0; i++) {
                writer.onNext(table.share());
                if (--left == 0) {
                    writer.onComplete();
                }
            }
            called.run();
        }

        @Override
        public void cancel() {
            called.run();
        }
    }
}
