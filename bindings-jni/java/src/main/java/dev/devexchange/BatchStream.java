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
 * or from a producer of the Arrow C stream interface or of the C Device data interface ("Device Stream Interface"). It
 * is read in Java ({@link #next}, a loop, {@link #stream}) or handed to a consumer of either interface.
 *
 * <p>Any thread may use it, but only one call at a time: a call that pulls or exports while another one pulls is
 * refused with {@link Status#BUSY}, and the other one goes on. After the end, every call returns the end; after an
 * error, every call throws that error. An error is always an exception, never the end. Batches do not depend on the
 * stream that they came from.
 *
 * <p>Close a stream when it is no longer needed, even before its end.
 */
public final class BatchStream extends Owned<BatchStream> implements AutoCloseable, Iterable<Batch> {
    /** The structs that a stream comes in. */
    private static final Handle.Kind[] STREAMS = {Handle.Kind.ARROW_STREAM, Handle.Kind.ARROW_DEVICE_STREAM};

    /** Produces the batches of a stream. */
    @FunctionalInterface
    public interface Source {
        /**
         * Returns the next batch, which the stream takes and closes.
         *
         * @return the batch, or {@code null} at the end
         * @throws Exception becomes the error of the stream, with its text, and is the cause of what {@link
         *     BatchStream#next} throws, unless the stream was exported. A {@link DevExchangeException} keeps its status
         *     (except {@link Status#BUSY}, which is reserved for a second call at the same time and becomes {@link
         *     Status#CALLBACK}); an {@link OutOfMemoryError} becomes {@link Status#OUT_OF_MEMORY}. The stream does not
         *     ask again
         */
        Batch next() throws Exception;
    }

    /** What the source threw; always empty for an imported stream. */
    private final AtomicReference<Throwable> thrown = new AtomicReference<>();

    /** Whether all batches have exactly the schema of the stream. */
    private final boolean uniform;

    /** The fields of the stream's schema. */
    private final Fields fields = new Fields();

    private BatchStream(boolean uniform) {
        super(Handle.Kind.BATCH_STREAM);
        this.uniform = uniform;
    }

    /**
     * Creates a stream of the batches that a source gives.
     *
     * <p>The source always runs on a daemon thread of this library: a foreign thread that pulls never enters the JVM,
     * it waits. The source is asked for one batch at a time, not always on the same thread, and may use other streams.
     * When the JVM exits, a thread that waits for it gets an error.
     *
     * @param schema the schema of all batches, whose flags and metadata may differ; it is shared and stays open
     * @param deviceType where all batches are
     * @param source asked for each batch, until it returns {@code null} or throws
     * @param release run once, on the thread of the {@link ReleaseQueue}, when neither this side nor a consumer uses
     *     the stream any more, whether it came to its end or not; may be null. If this call fails, it never runs.
     *     Neither it nor the source should refer to the stream: the garbage collector would then never find the stream
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
     * Creates a stream of the batches of an iterator, otherwise like {@link #of(Schema, DeviceType, Source, Runnable)}.
     * The stream takes each batch that it asks for; the caller keeps the others.
     *
     * @param schema the schema of all batches; it is shared and stays open
     * @param deviceType where all batches are
     * @param batches the batches; called on a thread of this library. An exception becomes the error of the stream
     * @return the stream, which the caller closes or exports
     * @throws DevExchangeException as {@link #of(Schema, DeviceType, Source, Runnable)}
     */
    public static BatchStream of(Schema schema, DeviceType deviceType, Iterator<Batch> batches) {
        Objects.requireNonNull(batches, "batches");
        Source source = () -> batches.hasNext() ? Objects.requireNonNull(batches.next(), "a batch is null") : null;
        return of(schema, deviceType, source, null);
    }

    /** Asks the source, and answers the thread that waits for it. */
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

        /** Makes a reference for the thread that waits. */
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

        /** The status for the thread that pulls, to which {@link Status#BUSY} would mean that another call runs. */
        static int told(DevExchangeException failure) {
            return failure.status() == Status.BUSY ? Status.CALLBACK : failure.status();
        }
    }

    /**
     * Takes a stream of arrays in host memory from its producer and asks it for its schema. On success the struct is
     * moved from (its {@code release} is NULL) and is released once, when the stream is no longer used; on failure it
     * is untouched and the caller still owns it.
     *
     * @param address of an {@code ArrowArrayStream} that the caller owns; its callbacks may be called from any thread
     * @return the stream, which the caller closes
     * @throws DevExchangeException {@link Status#NULL_ARGUMENT}, {@link Status#RELEASED}, {@link Status#CALLBACK} with
     *     the producer's code and text if it gives no schema, and those of {@link Schema#importArrow(long)}
     */
    public static BatchStream importArrow(long address) {
        return new BatchStream(true).of(Native.batchStreamImport(address, false));
    }

    /**
     * Same as {@link #importArrow(long)}, for arrays that carry their device and event.
     *
     * @param address of an {@code ArrowDeviceArrayStream} that the caller owns
     * @return the stream, which the caller closes
     * @throws DevExchangeException as {@link #importArrow(long)}; also {@link Status#DEVICE} for a device type that is
     *     unknown or that this library has no runtime for
     */
    public static BatchStream importArrowDevice(long address) {
        return new BatchStream(true).of(Native.batchStreamImport(address, true));
    }

    /**
     * Same as {@link #importArrow(long)} or {@link #importArrowDevice(long)}, as the struct is.
     *
     * @param stream an {@code ArrowArrayStream} or {@code ArrowDeviceArrayStream} with content
     * @return the stream, which the caller closes
     * @throws DevExchangeException also {@link Status#MISMATCH} for a struct of another kind
     */
    public static BatchStream importArrow(CStruct stream) {
        boolean device = stream.kind() == Handle.Kind.ARROW_DEVICE_STREAM;
        return stream.lend(
                "BatchStream.importArrow", device ? BatchStream::importArrowDevice : BatchStream::importArrow, STREAMS);
    }

    /**
     * Hands the stream to a consumer and closes it here. The consumer releases the struct. On failure the stream stays
     * open.
     *
     * <p>The consumer may call it on any thread and may release it before the end. An error text that the consumer gets
     * stays valid until the release.
     *
     * @param address of memory for an {@code ArrowArrayStream}; its previous content is overwritten, not released
     * @throws DevExchangeException {@link Status#NULL_ARGUMENT}, {@link Status#CLOSED}, {@link Status#DEVICE} if the
     *     batches are not in host memory, which this struct cannot express, {@link Status#BUSY} while another call
     *     pulls; on any error nothing is written
     */
    public void exportArrow(long address) {
        export("BatchStream.exportArrow", address, Handle.Kind.ARROW_STREAM);
    }

    /**
     * Same as {@link #exportArrow(long)}, with the device type.
     *
     * @param address of memory for an {@code ArrowDeviceArrayStream}; its previous content is overwritten, not released
     * @throws DevExchangeException {@link Status#NULL_ARGUMENT}, {@link Status#CLOSED}, {@link Status#BUSY} while
     *     another call pulls; on any error nothing is written
     */
    public void exportArrowDevice(long address) {
        export("BatchStream.exportArrowDevice", address, Handle.Kind.ARROW_DEVICE_STREAM);
    }

    /**
     * Same as {@link #exportArrow(long)} or {@link #exportArrowDevice(long)}, as the struct is.
     *
     * @param stream an {@code ArrowArrayStream} or {@code ArrowDeviceArrayStream} without content
     * @throws DevExchangeException also {@link Status#MISMATCH} for a struct of another kind, {@link
     *     Status#INVALID_ARGUMENT} for one with content
     */
    public void exportArrow(CStruct stream) {
        String method = "BatchStream.exportArrow";
        check(method);
        stream.fill(method, address -> export(method, address, stream.kind()), STREAMS);
    }

    private void export(String method, long address, Handle.Kind struct) {
        long stream = enter(method);
        try {
            Native.batchStreamExport(stream, address, struct == Handle.Kind.ARROW_DEVICE_STREAM);
        } finally {
            exit();
        }
        moved(method, struct, address);
    }

    /**
     * Returns the next batch. Blocks for as long as the producer does. A virtual thread leaves its carrier meanwhile:
     * one of this library's threads makes the call.
     *
     * @return the batch, which the caller closes; {@code null} at the end, and again after it
     * @throws DevExchangeException the error of the source; {@link Status#CALLBACK} with the producer's code and text
     *     if the producer failed; the errors of {@link Batch#importArrow(long, Schema)}; {@link Status#MISMATCH} or
     *     {@link Status#DEVICE} if a batch does not fit this stream. After each of these, every later call throws the
     *     same error. Also {@link Status#BUSY} while another call runs, and {@link Status#CLOSED}
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

    /** Adds what the source threw as the cause, unless the refusal only says that another call runs. */
    private DevExchangeException explained(DevExchangeException refusal) {
        Throwable why = thrown.get();
        if (why != null && Producer.told(Background.failure(why)) == refusal.status()) {
            refusal.initCause(why);
        }
        return refusal;
    }

    /**
     * Returns the remaining batches for a loop, which closes each of them.
     *
     * @return an iterator whose {@code hasNext} pulls a batch, and which throws what {@link #next} throws
     */
    @Override
    public Iterator<Batch> iterator() {
        return Spliterators.iterator(spliterator("BatchStream.iterator"));
    }

    /** {@return the remaining batches, each pulled when it is asked for} */
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

            /** Never splits: a split would pull ahead. */
            @Override
            public Spliterator<Batch> trySplit() {
                return null;
            }
        };
    }

    /**
     * Returns the remaining batches as a Java stream, whose {@code close} closes this one. Its consumer closes each
     * batch.
     *
     * @return a sequential stream, to be used with try-with-resources
     */
    public Stream<Batch> stream() {
        return StreamSupport.stream(spliterator("BatchStream.stream"), false).onClose(this::close);
    }

    /**
     * Returns a reference to the schema of all batches.
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
     * The kind of device that all batches are on. Which device of that kind, each batch says itself.
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
     * Gives the stream up. Batches that came from it stay. A call that is running ends first. Closing twice is fine.
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
