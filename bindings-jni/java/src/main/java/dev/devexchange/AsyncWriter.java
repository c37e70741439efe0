package dev.devexchange;

import java.lang.ref.Reference;
import java.util.Map;
import java.util.Objects;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Executor;
import java.util.concurrent.Flow;
import java.util.concurrent.atomic.AtomicReference;

/**
 * Produces an asynchronous stream for the handler of a consumer (Arrow C Device data interface, "Async Device Stream
 * Interface") from the batches that it receives as a subscriber.
 *
 * <p>The publisher is asked for exactly what the consumer requests, in portions: at most 64 batches are requested and
 * not yet sent, so that a publisher that gives all of them within {@code request} does not keep the consumer waiting
 * for the last one. If the consumer cancels, the writer cancels the publisher, even during {@code request}. {@code
 * onComplete} ends the stream, and {@code onError} becomes an error for the consumer (code {@code EIO}, with the
 * exception as text), both after the batches that preceded them. A publisher that gives a batch that was not requested
 * or does not fit the stream is cancelled, and the consumer gets an error.
 *
 * <p>The handler is called on daemon threads of this library, or on an executor of the program, one call after the
 * other; if {@link #close} ends the stream, the last calls may come on the thread that closes. {@code onNext} takes the
 * batch and closes it; its {@link Batch#metadata} goes to the consumer, too. A batch that the publisher never gives
 * stays the program's: {@link java.util.concurrent.SubmissionPublisher}, for example, drops what it holds after a cancel
 * and in {@code closeExceptionally}, and only the garbage collector closes it. The handler is released once, at the end
 * of the stream or when the writer is closed before that; then the consumer gets an error ({@code EPIPE}).
 */
public final class AsyncWriter extends Owned<AsyncWriter> implements Flow.Subscriber<Batch>, AutoCloseable {
    /** The code for errors without a code of their own ({@code errno.h}). */
    private static final int EIO = 5;

    /** The most batches that are requested from the publisher and not sent yet. */
    private static final int MOST = 64;

    /** A signal of the publisher: a batch, an error, or neither at the end. */
    private record Signal(Batch batch, Throwable error) {
        static final Signal END = new Signal(null, null);
    }

    private final Bell<AsyncWriter> bell;
    private final Serial steps;
    private final Schema schema;
    private final Queue<Signal> signals = new ConcurrentLinkedQueue<>();

    /** The publisher's subscription; {@link AsyncReader#NOTHING} when the stream is over. */
    private final AtomicReference<Flow.Subscription> subscription = new AtomicReference<>();

    private final CompletableFuture<Void> completion = new CompletableFuture<>();

    /** Completes when the publisher has been cancelled. */
    private final CompletableFuture<Void> left = new CompletableFuture<>();

    /** Whether the step is in the publisher's {@code request}, which can take any time. */
    private volatile boolean asking;

    // Used only by the step that calls the handler, which runs one at a time.
    private boolean started;
    private boolean over;

    /** The number of batches requested from the publisher and not sent. */
    private long due;

    private AsyncWriter(long handler, Schema schema, DeviceType deviceType, Map<String, String> metadata,
            Executor executor) {
        super(Handle.Kind.ASYNC_WRITER);
        this.bell = new Bell<>(this, AsyncWriter::rung);
        this.steps = new Serial(Dispatcher.executor(executor, this::giveUp), this::step, this::giveUp);
        this.schema = schema;
        Scratch block = Metadata.offHeap(metadata);
        Long token = Dispatcher.register(bell, forgotten(bell, completion));
        try {
            of(Native.asyncWriterCreate(
                    handler, deviceType.value(), block == null ? 0 : block.address, token));
        } catch (Throwable thrown) {
            Dispatcher.cancel(token);
            throw thrown;
        } finally {
            Reference.reachabilityFence(block);
        }
    }

    /**
     * What to do when the native writer is gone: a writer that was collected takes no step, which would tell that its
     * stream has ended. Must not refer to the writer.
     */
    private static Runnable forgotten(Bell<AsyncWriter> bell, CompletableFuture<Void> completion) {
        return () -> {
            if (!completion.isDone() && bell.isForgotten()) {
                DevExchangeException why = new DevExchangeException(
                        Status.CLOSED, "AsyncWriter: the writer was collected before the end of the stream");
                Dispatcher.WORKERS.execute(() -> completion.completeExceptionally(why));
            }
        };
    }

    /**
     * Creates a writer that calls the handler on threads of this library.
     *
     * @param handler the address of an {@code ArrowAsyncDeviceStreamHandler} that no other producer has. The writer
     *     takes the handler and releases it; if this call fails, the handler is untouched
     * @param schema the schema of all batches; it is shared and may be closed
     * @param deviceType where all batches are
     * @return the writer, which the caller gives to a publisher, or closes
     * @throws DevExchangeException {@link Status#NULL_ARGUMENT}, {@link Status#RELEASED}, {@link
     *     Status#INVALID_ARGUMENT} if a callback is missing, {@link Status#DEVICE} for a device type that is unknown or
     *     that this library has no runtime for, {@link Status#CLOSED}
     */
    public static AsyncWriter create(long handler, Schema schema, DeviceType deviceType) {
        return create(handler, schema, deviceType, Map.of(), null);
    }

    /**
     * Creates a writer with metadata and an executor, otherwise like {@link #create(long, Schema, DeviceType)}.
     *
     * @param handler the address of an {@code ArrowAsyncDeviceStreamHandler}
     * @param schema the schema of all batches
     * @param deviceType where all batches are
     * @param metadata the metadata of the whole stream; may be empty
     * @param executor runs the calls of the handler; {@code null} for threads of this library. If it rejects a task,
     *     the stream is given up
     * @return the writer
     * @throws DevExchangeException also {@link Status#INVALID_TEXT}, {@link Status#INVALID_METADATA}
     */
    public static AsyncWriter create(
            long handler, Schema schema, DeviceType deviceType, Map<String, String> metadata, Executor executor) {
        Schema shared = schema.share();
        try {
            return new AsyncWriter(handler, shared, deviceType, metadata, executor);
        } catch (Throwable thrown) {
            shared.close();
            throw thrown;
        }
    }

    @Override
    public void onSubscribe(Flow.Subscription given) {
        Objects.requireNonNull(given, "subscription");
        if (subscription.compareAndSet(null, given)) {
            bell.keep(this);
            schedule();
        } else {
            given.cancel();
        }
    }

    @Override
    public void onNext(Batch batch) {
        signal(new Signal(Objects.requireNonNull(batch, "batch"), null));
    }

    @Override
    public void onError(Throwable thrown) {
        signal(new Signal(null, Objects.requireNonNull(thrown, "error")));
    }

    @Override
    public void onComplete() {
        signal(Signal.END);
    }

    private void signal(Signal signal) {
        signals.add(signal);
        if (subscription.get() == AsyncReader.NOTHING) {
            dropSignals();
        } else {
            schedule();
        }
    }

    /**
     * Says how the stream ends; by then the handler is released. The stage completes normally if the consumer was told
     * that the publisher completed or failed, or if the consumer cancelled. Otherwise it completes with one of these:
     * <ul>
     * <li>a {@link DevExchangeException}: {@link Status#CALLBACK} if the consumer refused something, {@link
     *     Status#INVALID_ARGUMENT} for an invalid request of the consumer, {@link Status#MISMATCH}, {@link
     *     Status#DEVICE} or {@link Status#NOT_READY} for a batch that could not be sent, {@link Status#CLOSED} if the
     *     writer was closed, or collected as garbage, before the end;
     * <li>the exception of the executor that rejected a task, or of the publisher when it was asked for more.
     * </ul>
     *
     * @return a stage that completes on a thread of this library, on the executor, or on the thread that cancels the
     *     publisher
     */
    public CompletionStage<Void> completion() {
        return completion.minimalCompletionStage();
    }

    private void schedule() {
        steps.schedule();
    }

    /**
     * Called when the consumer requested or cancelled. Runs on the thread of the queue, so it calls no foreign code.
     */
    private void rung() {
        schedule();
        if (asking) {
            // The consumer may have cancelled, which the step does not see until the publisher returns.
            Dispatcher.WORKERS.execute(this::lookForCancel);
        }
    }

    private void lookForCancel() {
        boolean cancelled;
        try {
            cancelled = isCancelled();
        } catch (DevExchangeException closed) {
            return;
        }
        if (cancelled) {
            leave();
        }
    }

    /** Whether the consumer cancelled. */
    private boolean isCancelled() {
        long writer = enter("AsyncWriter");
        try {
            return Native.asyncWriterIsCancelled(writer);
        } finally {
            exit();
        }
    }

    private void giveUp(Throwable why) {
        Background.log("an asynchronous stream cannot go on and is given up", why);
        closeOnce();
        schema.close();
        bell.letGo();
        leave();
        completion.completeExceptionally(why);
        dropSignals();
    }

    /** Cancels the publisher, or the one that subscribes later; once, on any thread. */
    private void leave() {
        Flow.Subscription given = subscription.getAndSet(AsyncReader.NOTHING);
        if (given == AsyncReader.NOTHING) {
            return;
        }
        try {
            if (given != null) {
                given.cancel();
            }
        } catch (Throwable thrown) {
            Background.log("a subscription could not be cancelled", thrown);
        } finally {
            left.complete(null);
        }
    }

    // ---- calls of the handler, one at a time ----

    private void step() {
        try {
            boolean more = !over;
            while (more) {
                more = goOn() && !over;
            }
        } catch (Throwable thrown) {
            failed(thrown);
        }
        if (over) {
            dropSignals();
        }
    }

    /** Closes batches that came after the end. */
    private void dropSignals() {
        for (Signal late = signals.poll(); late != null; late = signals.poll()) {
            if (late.batch != null) {
                late.batch.close();
            }
        }
    }

    /** Does the next step. Returns whether there may be more to do at once. */
    private boolean goOn() {
        Flow.Subscription given = subscription.get();
        long more;
        long writer = enter("AsyncWriter");
        try {
            if (!started && !Native.asyncWriterIsCancelled(writer)) {
                if (given == null) {
                    return false;
                }
                started = true;
                start(writer);
            }
            // Releases the handler and throws if the consumer cancelled.
            long demand = Native.asyncWriterDemand(writer);
            Signal signal = signals.poll();
            if (signal != null) {
                handle(writer, signal);
                return true;
            }
            more = portion(demand);
            if (more == 0) {
                return false;
            }
            due += more;
        } finally {
            exit();
        }
        ask(given, more);
        return true;
    }

    /**
     * The number of batches to request: all that are wanted, but {@link #MOST} at most; a full portion is topped up
     * only once half of it was sent.
     */
    private long portion(long demand) {
        long wanted = Math.min(demand, MOST);
        return wanted < MOST || due <= MOST / 2 ? Math.max(0, wanted - due) : 0;
    }

    /** Asks the publisher. The handle is not in use meanwhile, so that a close is not delayed. */
    private void ask(Flow.Subscription given, long more) {
        asking = true;
        try {
            // The bell of a consumer that cancelled before {@code asking} was set had no effect.
            if (!isCancelled()) {
                given.request(more);
            }
        } finally {
            asking = false;
        }
    }

    private void start(long writer) {
        long open = schema.enter("AsyncWriter");
        try {
            Native.asyncWriterStart(writer, open);
        } finally {
            schema.exit();
        }
    }

    private void handle(long writer, Signal signal) {
        if (signal.batch != null) {
            try (Batch batch = signal.batch) {
                send(writer, batch);
            }
        } else if (signal.error != null) {
            Background.trace(signal.error);
            Native.asyncWriterFail(writer, EIO, Background.sendable(Background.text(signal.error)));
            end();
            completion.complete(null);
        } else {
            Native.asyncWriterFinish(writer);
            end();
            completion.complete(null);
        }
    }

    private void send(long writer, Batch batch) {
        if (due == 0) {
            throw new DevExchangeException(Status.NOT_READY, "the publisher gave a batch that was not requested");
        }
        due--;
        Scratch block = Metadata.offHeap(batch.metadata());
        long open = batch.enter("AsyncWriter.onNext");
        try {
            Native.asyncWriterSend(writer, open, block == null ? 0 : block.address);
        } finally {
            batch.exit();
            Reference.reachabilityFence(block);
        }
    }

    /** Ends the stream, once the consumer knows. */
    private void end() {
        over = true;
        closeOnce();
        schema.close();
        bell.letGo();
        subscription.set(AsyncReader.NOTHING);
    }

    /** Ends the stream after a failure: cancels the publisher, and tells the consumer unless it knows. */
    private void failed(Throwable thrown) {
        leave();
        boolean wanted = tell(thrown);
        end();
        left.thenRun(() -> {
            if (wanted) {
                completion.complete(null);
            } else {
                completion.completeExceptionally(thrown);
            }
        });
    }

    /**
     * Tells the consumer of a failure. Returns whether the consumer had cancelled, in which case nothing went wrong.
     */
    private boolean tell(Throwable thrown) {
        long writer;
        try {
            writer = enter("AsyncWriter");
        } catch (DevExchangeException closed) {
            return false;
        }
        try {
            boolean cancelled = Native.asyncWriterIsCancelled(writer);
            Native.asyncWriterFail(writer, EIO, Background.sendable(Background.text(thrown)));
            return cancelled;
        } catch (DevExchangeException ended) {
            // The consumer ended the stream itself.
            return false;
        } finally {
            exit();
        }
    }

    /** {@return whether it was closed, or the stream is over} */
    public boolean isClosed() {
        return super.isClosed();
    }

    /**
     * Ends the stream if it is not over: cancels the publisher on this thread, and tells the consumer that the producer
     * went away. That, and the release of the handler, also happens on this thread, or at the end of a call of the
     * writer that is running. Closing twice is fine.
     */
    @Override
    public void close() {
        if (closeOnce()) {
            schedule();
            leave();
        }
    }
}
