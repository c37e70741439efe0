package dev.devexchange;

import java.util.Iterator;
import java.util.Objects;
import java.util.Spliterator;
import java.util.Spliterators;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/**
 * A stream of batches of one schema on one kind of device, pulled one after the other. It comes from Java ({@link #of})
 * or from a producer of the Arrow C stream interface or of the C Device data interface ("Device Stream Interface"), and
 * goes to Java ({@link #next}, a loop, {@link #stream}) or to a consumer of either.
 *
 * <p>Any thread may use it, but one call at a time: one that pulls or exports while another pulls is refused with
 * {@link Status#BUSY}, and the other one goes on. The end stays the end and an error stays that error; an error is an
 * exception and never the end. Batches do not depend on the stream that they came from.
 *
 * <p>Close a stream when it is not needed any more, also in the middle.
 */
public final class BatchStream extends Owned<BatchStream> implements AutoCloseable, Iterable<Batch> {
    /** Gives the batches of a stream. */
    @FunctionalInterface
    public interface Source {
        /**
         * The next batch, which the stream takes and closes.
         *
         * @return the batch, or {@code null} at the end
         * @throws Exception becomes the error of the stream, with its text; of a {@link DevExchangeException} also the
         *     status ({@link Status#CALLBACK} in place of {@link Status#BUSY}, which is what a second call at the same
         *     time gets), and an {@link OutOfMemoryError} is {@link Status#OUT_OF_MEMORY}. It is the cause of what
         *     {@link BatchStream#next} throws, unless the stream was exported. The stream does not ask again
         */
        Batch next() throws Exception;
    }

    /** What the source threw; nothing of a stream that was imported. */
    private final AtomicReference<Throwable> thrown = new AtomicReference<>();

    /** Whether all batches have the very schema of the stream. */
    private final boolean uniform;

    /** Those of the stream's schema. */
    private final Fields fields = new Fields();

    private BatchStream(boolean uniform) {
        super(Handle.Kind.BATCH_STREAM);
        this.uniform = uniform;
    }

    /**
     * A stream of what a source gives.
     *
     * <p>The source is asked on a daemon thread of this library, whoever pulls: a foreign thread never enters the JVM,
     * it waits. It is asked for one batch at a time, not always on the same thread, and may use other streams. When the
     * JVM exits, whoever waits for it gets an error.
     *
     * @param schema what all batches are; flags and metadata of a batch may differ. It is shared and stays open
     * @param deviceType where all batches are
     * @param source asked for each batch, until it gives {@code null} or throws
     * @param release run once, on the thread of the {@link ReleaseQueue}, when the stream is not used any more, on this
     *     side or by a consumer, whether it came to its end or not; may be null. If this call fails, it is never run.
     *     If it or the source refers to the stream, the garbage collector never finds that
     * @return the stream, which the caller closes or exports
     * @throws DevExchangeException {@link Status#DEVICE} for a device type that is not known or that this library has
     *     no runtime for, {@link Status#CLOSED}
     */
    public static BatchStream of(Schema schema, DeviceType deviceType, Source source, Runnable release) {
        BatchStream stream = new BatchStream(false);
        Producer producer = new Producer(Objects.requireNonNull(source, "source"), stream.thrown);
        Long token = Dispatcher.register(producer, release);
        long made = 0;
        try {
            long open = schema.enter("BatchStream.of");
            try {
                made = Native.batchStreamCreate(open, deviceType.value(), token);
            } finally {
                schema.exit();
            }
        } finally {
            if (made == 0) {
                Dispatcher.cancel(token);
            }
        }
        return stream.of(made);
    }

    /**
     * A stream of batches that are there or are made one by one; as {@link #of(Schema, DeviceType, Source, Runnable)}.
     * The stream takes each batch that it asks for; what it does not ask for stays the caller's.
     *
     * @param schema what all batches are; it is shared and stays open
     * @param deviceType where all batches are
     * @param batches asked on a thread of this library; what it throws becomes the error of the stream
     * @return the stream, which the caller closes or exports
     * @throws DevExchangeException as {@link #of(Schema, DeviceType, Source, Runnable)}
     */
    public static BatchStream of(Schema schema, DeviceType deviceType, Iterator<Batch> batches) {
        Objects.requireNonNull(batches, "batches");
        Source source = () -> batches.hasNext() ? Objects.requireNonNull(batches.next(), "a batch is null") : null;
        return of(schema, deviceType, source, null);
    }

    /** Answers those who wait for a source. */
    private record Producer(Source source, AtomicReference<Throwable> thrown) implements Dispatcher.Task {
        @Override
        public void start(long token) {
            Dispatcher.WORKERS.execute(() -> answer(token));
        }

        private void answer(long token) {
            long batch;
            try (Batch next = source.next()) {
                batch = next == null ? 0 : share(next);
            } catch (Throwable why) {
                failed(token, why);
                return;
            }
            Native.sourceAnswer(token, batch);
        }

        /** A reference for whoever waits. */
        private static long share(Batch batch) {
            long open = batch.enter("BatchStream.Source.next");
            try {
                return Native.batchShare(open);
            } finally {
                batch.exit();
            }
        }

        @Override
        public void failed(long token, Throwable why) {
            Background.trace(why);
            DevExchangeException failure = Background.failure(why);
            thrown.set(why);
            Native.sourceFail(
                    token, told(failure), failure.driverCode(), Background.sendable(failure.getMessage()));
        }

        /** The status that those who pull get: {@link Status#BUSY} would tell them that another call runs. */
        static int told(DevExchangeException failure) {
            return failure.status() == Status.BUSY ? Status.CALLBACK : failure.status();
        }
    }

    /**
     * Takes a stream of arrays in host memory from its producer and asks it for its schema. On success the struct is
     * moved from (its {@code release} is NULL) and is released once, when the stream is not used any more; on failure
     * it is untouched.
     *
     * @param address of an {@code ArrowArrayStream} that the caller owns; its callbacks may be called from any thread
     * @return the stream, which the caller closes
     * @throws DevExchangeException {@link Status#NULL_ARGUMENT}, {@link Status#RELEASED}, {@link Status#CALLBACK} if
     *     the producer has no schema, with its code and its text, and as {@link Schema#importArrow}
     */
    public static BatchStream importArrow(long address) {
        return new BatchStream(true).of(Native.batchStreamImport(address, false));
    }

    /**
     * As {@link #importArrow}, for arrays that say where they are and when they may be touched.
     *
     * @param address of an {@code ArrowDeviceArrayStream} that the caller owns
     * @return the stream, which the caller closes
     * @throws DevExchangeException as {@link #importArrow}, also {@link Status#DEVICE} for a device type that is not
     *     known or that this library has no runtime for
     */
    public static BatchStream importArrowDevice(long address) {
        return new BatchStream(true).of(Native.batchStreamImport(address, true));
    }

    /**
     * Hands the stream to a consumer, which releases it, and closes it here. On failure it stays open.
     *
     * <p>The consumer may call it on any thread and release it in the middle. A text that it is given stays valid until
     * the release.
     *
     * @param address of room for an {@code ArrowArrayStream}; what it holds is overwritten, not released
     * @throws DevExchangeException {@link Status#NULL_ARGUMENT}, {@link Status#CLOSED}, {@link Status#DEVICE} if the
     *     batches are not in host memory, which this struct cannot say, {@link Status#BUSY} while another call pulls;
     *     then nothing is written
     */
    public void exportArrow(long address) {
        export("BatchStream.exportArrow", address, Handle.Kind.ARROW_STREAM);
    }

    /**
     * As {@link #exportArrow}, with the device type.
     *
     * @param address of room for an {@code ArrowDeviceArrayStream}; what it holds is overwritten, not released
     * @throws DevExchangeException {@link Status#NULL_ARGUMENT}, {@link Status#CLOSED}, {@link Status#BUSY} while
     *     another call pulls; then nothing is written
     */
    public void exportArrowDevice(long address) {
        export("BatchStream.exportArrowDevice", address, Handle.Kind.ARROW_DEVICE_STREAM);
    }

    private void export(String method, long address, Handle.Kind struct) {
        long stream = enter(method);
        try {
            Native.batchStreamExport(stream, address, struct == Handle.Kind.ARROW_DEVICE_STREAM);
        } finally {
            exit();
        }
        handle.moved(method, struct, address);
    }

    /**
     * The next batch. It blocks for as long as the producer does; a virtual thread leaves its carrier meanwhile, as one
     * of this library's threads makes the call.
     *
     * @return the batch, which the caller closes; {@code null} at the end, and again after it
     * @throws DevExchangeException what the source threw; {@link Status#CALLBACK} if the producer failed, with its code
     *     and its text; what {@link Batch#importArrow(long, Schema)} says of an array; {@link Status#MISMATCH} or
     *     {@link Status#DEVICE} if a batch is not of this stream: after each of them the same error again.
     *     {@link Status#BUSY} while another call runs, {@link Status#CLOSED}
     */
    public Batch next() {
        return Waiting.call(this::pull);
    }

    private Batch pull() {
        long stream = enter("BatchStream.next");
        try {
            Batch next = uniform ? new Batch(fields) : new Batch();
            long batch = Native.batchStreamNext(stream);
            return batch == 0 ? null : next.of(batch);
        } catch (DevExchangeException refusal) {
            throw explained(refusal);
        } finally {
            exit();
        }
    }

    /** With what the source threw as its cause, if that is what it says, and not that another call runs. */
    private DevExchangeException explained(DevExchangeException refusal) {
        Throwable why = thrown.get();
        if (why != null && Producer.told(Background.failure(why)) == refusal.status()) {
            refusal.initCause(why);
        }
        return refusal;
    }

    /**
     * The batches from here on, for a loop. Whoever gets one closes it.
     *
     * @return an iterator, which pulls a batch when it is asked whether there is one, and throws what {@link #next}
     *     does
     */
    @Override
    public Iterator<Batch> iterator() {
        return Spliterators.iterator(spliterator("BatchStream.iterator"));
    }

    /** {@return the batches from here on, each pulled when it is asked for} */
    @Override
    public Spliterator<Batch> spliterator() {
        return spliterator("BatchStream.spliterator");
    }

    private Spliterator<Batch> spliterator(String method) {
        check(method);
        int characteristics = Spliterator.ORDERED | Spliterator.NONNULL;
        return new Spliterators.AbstractSpliterator<>(Long.MAX_VALUE, characteristics) {
            @Override
            public boolean tryAdvance(Consumer<? super Batch> action) {
                Objects.requireNonNull(action, "action");
                Batch next = BatchStream.this.next();
                if (next != null) {
                    action.accept(next);
                }
                return next != null;
            }

            /** Those who split would pull ahead. */
            @Override
            public Spliterator<Batch> trySplit() {
                return null;
            }
        };
    }

    /**
     * The batches from here on as a stream of Java's, whose {@code close} closes this one. Whoever gets a batch closes
     * it.
     *
     * @return a sequential stream, to be used with try-with-resources
     */
    public Stream<Batch> stream() {
        return StreamSupport.stream(spliterator("BatchStream.stream"), false).onClose(this::close);
    }

    /**
     * A reference to the schema of all batches.
     *
     * @return the schema, which the caller closes
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public Schema schema() {
        long stream = enter("BatchStream.schema");
        try {
            return new Schema(fields).of(Native.batchStreamSchema(stream));
        } finally {
            exit();
        }
    }

    /**
     * The kind of device that all batches are on; which one of that kind, each says itself.
     *
     * @return the type
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public DeviceType deviceType() {
        long stream = enter("BatchStream.deviceType");
        try {
            return new DeviceType(Native.batchStreamDeviceType(stream));
        } finally {
            exit();
        }
    }

    /** {@return whether it was closed or exported} */
    public boolean isClosed() {
        return super.isClosed();
    }

    /**
     * Gives the stream up; batches that came from it stay. A call that is running ends first. Closing twice is fine.
     */
    @Override
    public void close() {
        super.close();
    }

    /** {@return the device type, and names and types of the columns, or that it is closed} */
    @Override
    public String toString() {
        try (Schema schema = schema()) {
            return "BatchStream (on " + deviceType() + ": " + schema.shown() + ")";
        } catch (DevExchangeException closed) {
            return "BatchStream (closed)";
        }
    }
}
