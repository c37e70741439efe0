package dev.devexchange;

import java.lang.ref.Reference;
import java.time.Duration;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.Flow;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.LongConsumer;
import java.util.function.LongUnaryOperator;

/**
 * Consumes an asynchronous stream of a producer (Arrow C Device data interface, "Async Device Stream Interface") and
 * publishes its batches. Give {@link #handlerAddress} to the producer, and subscribe.
 *
 * <p>The producer is asked for exactly what the subscriber requests, and {@code cancel} cancels the producer. Only one
 * subscriber is served; any other gets {@code onError} with an {@link IllegalStateException}. The rules are those of
 * {@link java.util.concurrent.Flow} and of Reactive Streams: {@code onSubscribe} comes first; signals come one after
 * the other; only requested batches come; a {@code request} of a number that is not positive leads to {@code onError}
 * with an {@link IllegalArgumentException}; nothing comes after {@code onError} or {@code onComplete}. An error comes
 * after the batches that preceded it: {@link Status#CALLBACK} if the producer failed or broke its contract, the error
 * of an import if an array or its metadata is invalid, {@link Status#MISMATCH} or {@link Status#DEVICE} if a batch does
 * not have the stream's schema or device type. If the subscriber throws, the stream is cancelled and the exception is
 * logged.
 *
 * <p>Signals come on daemon threads of this library, or on an executor of the program, never on a thread of the
 * producer. The subscriber closes each batch; {@link Batch#metadata} has what the producer said about it. Any thread
 * may use a reader. Close it when it is no longer needed; the handler that the producer was given stays valid until the
 * producer is done.
 */
public final class AsyncReader extends Owned<AsyncReader> implements Flow.Publisher<Batch>, AutoCloseable {
    // The results of `async_reader_next`.
    private static final int PENDING = 0;
    private static final int BATCH = 1;
    private static final int END = 2;

    /** What {@code async_reader_error} writes for the code if there is none: 0 can be one. */
    private static final long NO_ERROR = Long.MIN_VALUE;

    /**
     * What a producer reported with its error, besides the text.
     *
     * @param code its {@code errno} code
     * @param metadata its metadata; unmodifiable
     */
    public record ProducerError(int code, Map<String, String> metadata) {}

    private final Bell<AsyncReader> bell;
    private final Serial signals;

    /** Looks for the schema even during a signal, because a subscriber may be waiting for it there. */
    private final Serial looks;

    /** Tells further subscribers that there is a subscriber already. */
    private final Executor others;

    private final CompletableFuture<Schema> schema = new CompletableFuture<>();

    /** The fields of the schema. */
    private final Fields fields = new Fields();

    private volatile DeviceType deviceType;
    private volatile Map<String, String> metadata = Map.of();
    private volatile ProducerError producerError;

    private final AtomicBoolean subscribed = new AtomicBoolean();

    /** The subscriber; null once the stream is over. */
    private volatile Flow.Subscriber<? super Batch> subscriber;

    /** The number of batches that the subscriber requested and has not received. */
    private final AtomicLong demand = new AtomicLong();

    private volatile boolean cancelled;

    /** Why the stream ended: an invalid request, an error of the producer, or a failure of this reader. */
    private final AtomicReference<Throwable> failure = new AtomicReference<>();

    // Used only by the step that gives signals, which runs one at a time.
    private boolean greeted;
    private boolean over;

    private AsyncReader(boolean abiHMetadata, Executor executor) {
        super(Handle.Kind.ASYNC_READER);
        this.bell = new Bell<>(this, AsyncReader::rung);
        this.signals = new Serial(Dispatcher.executor(executor, this::giveUp), this::step, this::giveUp);
        this.looks = new Serial(Dispatcher.WORKERS, this::look, this::giveUp);
        this.others = Dispatcher.executor(executor, AsyncReader::logOther);
        Long token = Dispatcher.register(bell, null);
        try {
            of(Native.asyncReaderCreate(abiHMetadata, token));
        } catch (Throwable thrown) {
            Dispatcher.cancel(token);
            throw thrown;
        }
    }

    /**
     * Creates a reader that gives signals on threads of this library and does not read the metadata of the whole
     * stream.
     *
     * @return the reader, which the caller closes
     */
    public static AsyncReader create() {
        return create(false, null);
    }

    /**
     * Creates a reader.
     *
     * @param abiHMetadata whether the producer's struct is the one of Arrow's {@code abi.h} (40 bytes), so that {@link
     *     #metadata} can be read; {@code false} if that is not known, because the text of the specification has a
     *     different struct
     * @param executor runs the signals; {@code null} for threads of this library. If it rejects a task, the stream is
     *     cancelled, which is logged
     * @return the reader, which the caller closes
     */
    public static AsyncReader create(boolean abiHMetadata, Executor executor) {
        return new AsyncReader(abiHMetadata, executor);
    }

    /**
     * Returns the handler for a producer; can be called once. The producer that takes the handler calls its
     * {@code release} exactly once; that call waits for a running call of the producer's {@code request} or
     * {@code cancel}, so the producer must hold no lock that those need. If no producer takes it, let an
     * {@link AsyncWriter} take it, and close the writer.
     *
     * @return the address of an {@code ArrowAsyncDeviceStreamHandler}, valid until it is released, even after this
     *     reader is closed
     * @throws DevExchangeException {@link Status#INVALID_ARGUMENT} for a second call, {@link Status#CLOSED}
     */
    public long handlerAddress() {
        long reader = enter("AsyncReader.handlerAddress");
        try {
            return Native.asyncReaderHandler(reader);
        } finally {
            exit();
        }
    }

    @Override
    public void subscribe(Flow.Subscriber<? super Batch> wanted) {
        Objects.requireNonNull(wanted, "subscriber");
        if (subscribed.compareAndSet(false, true)) {
            subscriber = wanted;
            bell.keep(this);
            schedule();
        } else {
            others.execute(() -> {
                try {
                    wanted.onSubscribe(NOTHING);
                    wanted.onError(new IllegalStateException("AsyncReader.subscribe: there is a subscriber already"));
                } catch (Throwable thrown) {
                    logOther(thrown);
                }
            });
        }
    }

    private static void logOther(Throwable thrown) {
        Background.log("a subscriber could not be told that there is one already", thrown);
    }

    /** The subscription of a subscriber that gets no batches. */
    static final Flow.Subscription NOTHING = new Flow.Subscription() {
        @Override
        public void request(long n) {}

        @Override
        public void cancel() {}
    };

    private final class Subscription implements Flow.Subscription {
        @Override
        public void request(long n) {
            if (n <= 0) {
                refuse(n);
                return;
            }
            // A demand that would overflow stays at the maximum.
            long before = demand.getAndUpdate(due -> due > Long.MAX_VALUE - n ? Long.MAX_VALUE : due + n);
            long more = Math.min(n, Long.MAX_VALUE - before);
            if (more > 0) {
                ask(reader -> Native.asyncReaderRequest(reader, more));
            }
        }

        private void refuse(long n) {
            String text = "AsyncReader: n is " + n + ": a subscriber must request a positive number";
            failure.compareAndSet(null, new IllegalArgumentException(text));
            ask(Native::asyncReaderCancel);
            schedule();
        }

        @Override
        public void cancel() {
            if (!cancelled) {
                cancelled = true;
                ask(Native::asyncReaderCancel);
                schedule();
            }
        }
    }

    /** Calls the native reader, unless the stream is over. */
    private void ask(LongConsumer call) {
        long reader;
        try {
            reader = enter("AsyncReader");
        } catch (DevExchangeException closed) {
            return;
        }
        try {
            call.accept(reader);
        } finally {
            exit();
        }
    }

    private void schedule() {
        signals.schedule();
    }

    /**
     * Called when there is news. Runs on the thread of the queue, so it does not look itself: the last call that leaves
     * a reader which was closed meanwhile cancels the producer, and so calls foreign code.
     */
    private void rung() {
        if (!schema.isDone()) {
            looks.schedule();
        }
        schedule();
    }

    private void giveUp(Throwable why) {
        Background.log("an asynchronous stream cannot give its signals and is cancelled", why);
        cancelled = true;
        // Done before closing, so that a thread that looks for the schema does not find just a closed reader.
        schema.completeExceptionally(closed("the executor refused to go on"));
        closeOnce();
        bell.letGo();
    }

    // ---- signals, one at a time ----

    private void step() {
        look();
        Flow.Subscriber<? super Batch> listener = subscriber;
        if (listener != null && !over) {
            try {
                signal(listener);
            } catch (Throwable thrown) {
                Background.log("a subscriber failed; its stream is cancelled", thrown);
                cancelled = true;
                end();
            }
        }
    }

    private void look() {
        if (failure.get() == null) {
            try {
                lookForSchema();
            } catch (Throwable thrown) {
                fail(thrown);
            }
        }
    }

    /** Takes the schema, device type and metadata once they have come; on any thread. */
    private void lookForSchema() {
        if (schema.isDone()) {
            return;
        }
        Scratch scratch = Scratch.get();
        Schema come = new Schema(fields);
        long found = poll(reader -> {
            long address = Native.asyncReaderSchema(reader, scratch.address);
            if (address != 0) {
                come.of(address);
                deviceType = new DeviceType((int) scratch.buffer.getLong(0));
                metadata = Metadata.read(scratch.buffer.getLong(Long.BYTES));
            }
            return address;
        });
        if (found != 0 && !schema.complete(come)) {
            come.close();
        }
    }

    /** Asks the native reader. If the stream failed, keeps what the producer reported. */
    private long poll(LongUnaryOperator call) {
        long reader = enter("AsyncReader");
        try {
            return call.applyAsLong(reader);
        } catch (DevExchangeException thrown) {
            Scratch scratch = Scratch.get();
            Native.asyncReaderError(reader, scratch.address);
            long code = scratch.buffer.getLong(0);
            if (code != NO_ERROR) {
                producerError = new ProducerError((int) code, Metadata.read(scratch.buffer.getLong(Long.BYTES)));
            }
            throw thrown;
        } finally {
            exit();
        }
    }

    private void signal(Flow.Subscriber<? super Batch> listener) {
        if (!greeted) {
            greeted = true;
            listener.onSubscribe(new Subscription());
        }
        while (!over) {
            if (cancelled) {
                end();
            } else if (failure.get() != null) {
                end();
                listener.onError(failure.get());
            } else if (!signalNext(listener)) {
                return;
            }
        }
    }

    /** Gives the next signal. Returns whether there was news, even if only an error to be signalled next. */
    private boolean signalNext(Flow.Subscriber<? super Batch> listener) {
        Batch[] next = new Batch[1];
        long what;
        try {
            what = poll(reader -> next(reader, next));
        } catch (Throwable thrown) {
            if (next[0] != null) {
                next[0].close();
            }
            fail(thrown);
            return true;
        }
        if (cancelled || failure.get() != null) {
            // The result is no longer wanted, or is itself a result of the cancelling.
            if (what == BATCH) {
                next[0].close();
            }
            return true;
        }
        if (what == END) {
            end();
            listener.onComplete();
        } else if (what == BATCH) {
            demand.decrementAndGet();
            listener.onNext(next[0]);
        }
        return what != PENDING;
    }

    private int next(long reader, Batch[] next) {
        Batch batch = new Batch(fields);
        Scratch scratch = Scratch.get();
        int what = Native.asyncReaderNext(reader, scratch.address);
        if (what == PENDING) {
            return what;
        }
        if (what == BATCH) {
            next[0] = batch.of(scratch.buffer.getLong(0));
            long said = scratch.buffer.getLong(Long.BYTES);
            if (said != 0) {
                next[0] = batch.shareWith(Metadata.read(said));
                batch.close();
            }
        }
        // The schema may have been seen only now, but it came before this.
        lookForSchema();
        return what;
    }

    private void fail(Throwable thrown) {
        failure.compareAndSet(null, thrown);
        try {
            // A failure after the schema came does not take it away.
            lookForSchema();
        } catch (Throwable none) {
            schema.completeExceptionally(thrown);
        }
    }

    private void end() {
        over = true;
        closeOnce();
        bell.letGo();
        subscriber = null;
        // Another thread may have stored a failure without telling those who wait for the schema.
        Throwable failed = failure.get();
        schema.completeExceptionally(failed == null ? closed("the stream was cancelled") : failed);
    }

    private static DevExchangeException closed(String why) {
        return new DevExchangeException(Status.CLOSED, "AsyncReader: " + why);
    }

    // ---- what is known ----

    /**
     * Returns the schema of all batches. It is known from the first batch on; before that, this call waits for it.
     *
     * @param timeout the longest time to wait. Any very long time, for example {@code
     *     ChronoUnit.FOREVER.getDuration()}, is a wait without a limit
     * @return a reference to the schema, which the caller closes
     * @throws InterruptedException if the calling thread is interrupted meanwhile
     * @throws DevExchangeException {@link Status#NOT_READY} if the schema did not come in time; the error that ended
     *     the stream before it came; {@link Status#CLOSED} if the stream was cancelled before, or this reader is closed
     */
    public Schema schema(Duration timeout) throws InterruptedException {
        try {
            return awaitSchema(timeout);
        } finally {
            // Without a subscriber nothing else keeps this reachable, and a collected reader is not told that the
            // schema has come.
            Reference.reachabilityFence(this);
        }
    }

    private Schema awaitSchema(Duration timeout) throws InterruptedException {
        Schema come;
        try {
            come = schema.get(TimeUnit.NANOSECONDS.convert(timeout), TimeUnit.NANOSECONDS);
        } catch (TimeoutException e) {
            throw new DevExchangeException(
                    Status.NOT_READY, "AsyncReader.schema: timeout is " + timeout + ": the schema has not come");
        } catch (ExecutionException e) {
            DevExchangeException why = Background.failure(e.getCause());
            throw new DevExchangeException(why.status(), why.getMessage());
        }
        try {
            return come.share();
        } catch (DevExchangeException e) {
            // Only closing the reader closes this schema: nobody else has it.
            throw come.isClosed() ? closed("the reader is closed") : e;
        }
    }

    /**
     * The kind of device that all batches are on, according to the producer.
     *
     * @return the type; {@code null} before the schema has come
     */
    public DeviceType deviceType() {
        return deviceType;
    }

    /**
     * What the producer says about the whole stream.
     *
     * @return keys and values; empty before the schema has come, and if {@code abiHMetadata} was {@code false};
     *     unmodifiable
     */
    public Map<String, String> metadata() {
        return metadata;
    }

    /**
     * What the producer reported with its error, besides the text.
     *
     * @return code and metadata; {@code null} if the producer reported no error
     */
    public ProducerError producerError() {
        return producerError;
    }

    /** {@return whether it was closed, or the stream is over} */
    public boolean isClosed() {
        return super.isClosed();
    }

    /**
     * Cancels the rest of the stream. A subscriber whose stream is not over gets {@code onError} with {@link
     * Status#CLOSED}. Closing twice is fine.
     */
    @Override
    public void close() {
        boolean first = closeOnce();
        schema.completeExceptionally(closed("the reader is closed"));
        if (!schema.isCompletedExceptionally()) {
            schema.join().close();
        }
        if (first) {
            schedule();
        }
    }
}
