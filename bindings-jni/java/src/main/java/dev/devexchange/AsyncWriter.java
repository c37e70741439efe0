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
 * The producer of an asynchronous stream for somebody's handler (Arrow C Device data interface, "Async Device Stream
 * Interface"), as a subscriber that is given the batches.
 *
 * <p>What the consumer requests is what the publisher is asked for, no more and no less, in portions: no more than 64
 * batches are asked for and not sent, so that a publisher that gives them within {@code request} does not keep all of
 * them from the consumer. If the consumer cancels, so does this, also while the publisher is being asked.
 * {@code onComplete} ends the stream, {@code onError} becomes an error of the consumer's (code {@code EIO}, with the
 * exception as text), both after the batches that came before them. A publisher that gives a batch that was not
 * requested or that is not of this stream is cancelled, and the consumer is told.
 *
 * <p>The handler is called on daemon threads of this library, or on an executor of the user's, one call after the
 * other. {@code onNext} takes the batch and closes it; {@link Batch#metadata} goes to the consumer with it. The
 * handler is released once, at the end or when this is closed before, which the consumer is told ({@code EPIPE}).
 */
public final class AsyncWriter extends Owned<AsyncWriter> implements Flow.Subscriber<Batch>, AutoCloseable {
    /** The code of an error that has none: {@code errno.h}. */
    private static final int EIO = 5;

    /** What is asked of the publisher and not sent yet is no more. */
    private static final int MOST = 64;

    /** What the publisher said: a batch, or an error, or neither at the end. */
    private record Signal(Batch batch, Throwable error) {
        static final Signal END = new Signal(null, null);
    }

    private final Bell<AsyncWriter> bell;
    private final Serial steps;
    private final Schema schema;
    private final Queue<Signal> signals = new ConcurrentLinkedQueue<>();

    /** That of the publisher; {@link AsyncReader#NOTHING} when the stream is over. */
    private final AtomicReference<Flow.Subscription> subscription = new AtomicReference<>();

    private final CompletableFuture<Void> completion = new CompletableFuture<>();

    /** Once the publisher has been cancelled, by whoever did it. */
    private final CompletableFuture<Void> left = new CompletableFuture<>();

    /** Whether the step is in the publisher's {@code request}, for who knows how long. */
    private volatile boolean asking;

    // Of the step that calls the handler: one at a time.
    private boolean started;
    private boolean over;

    /** Requested of the publisher, and not sent. */
    private long due;

    private AsyncWriter(long handler, Schema schema, DeviceType deviceType, Map<String, String> metadata,
            Executor executor) {
        super(Handle.Kind.ASYNC_WRITER);
        this.bell = new Bell<>(this, AsyncWriter::rung);
        this.steps = new Serial(Dispatcher.executor(executor, this::giveUp), this::step, this::giveUp);
        this.schema = schema;
        Scratch block = Metadata.offHeap(metadata);
        Long token = Dispatcher.register(bell, null);
        try {
            handle.hold(Native.asyncWriterCreate(
                    handler, deviceType.value(), block == null ? 0 : block.address, token));
        } catch (Throwable thrown) {
            Dispatcher.cancel(token);
            throw thrown;
        } finally {
            Reference.reachabilityFence(block);
        }
    }

    /**
     * A writer that calls the handler on threads of this library.
     *
     * @param handler the address of an {@code ArrowAsyncDeviceStreamHandler} that no other producer has. The writer
     *     takes it and releases it; if this call fails, it is untouched
     * @param schema what all batches are; it is shared and may be closed
     * @param deviceType where all batches are
     * @return the writer, to be given to a publisher, or closed
     * @throws DevExchangeException {@link Status#NULL_ARGUMENT}, {@link Status#RELEASED},
     *     {@link Status#INVALID_ARGUMENT} if a callback is missing, {@link Status#DEVICE} for a device type that is not
     *     known or that this library has no runtime for, {@link Status#CLOSED}
     */
    public static AsyncWriter create(long handler, Schema schema, DeviceType deviceType) {
        return create(handler, schema, deviceType, Map.of(), null);
    }

    /**
     * As {@link #create(long, Schema, DeviceType)}.
     *
     * @param handler the address of an {@code ArrowAsyncDeviceStreamHandler}
     * @param schema what all batches are
     * @param deviceType where all batches are
     * @param metadata said about the whole stream; may be empty
     * @param executor what the handler is called on; {@code null} for threads of this library. If it refuses to, the
     *     stream is given up
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
     * How the stream ends: normally if the publisher completed it or failed and the consumer was told, or if the
     * consumer cancelled; otherwise with a {@link DevExchangeException}: {@link Status#CALLBACK} if the consumer
     * refused something, {@link Status#INVALID_ARGUMENT} if it requested what cannot be, {@link Status#MISMATCH},
     * {@link Status#DEVICE} or {@link Status#NOT_READY} for a batch that could not be sent, {@link Status#CLOSED} if
     * the writer was closed before the end; or with what the executor threw that refused to go on, or the publisher
     * when it was asked for more. The handler is released then.
     *
     * @return a stage that completes on the thread of the last call of the handler, or on the one that cancels the
     *     publisher
     */
    public CompletionStage<Void> completion() {
        return completion.minimalCompletionStage();
    }

    private void schedule() {
        steps.schedule();
    }

    /** The consumer wants something. On the thread of the queue, so this calls nobody. */
    private void rung() {
        schedule();
        if (asking) {
            // It may be that it cancelled, which the step does not see before the publisher returns.
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

    /** Cancels the publisher, or whoever comes yet; once, on whatever thread. */
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

    /** What comes after the end is not wanted. */
    private void dropSignals() {
        for (Signal late = signals.poll(); late != null; late = signals.poll()) {
            if (late.batch != null) {
                late.batch.close();
            }
        }
    }

    /** Whether there may be more to do at once. */
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
            // Says so if the consumer cancelled, and releases the handler.
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

    /** How much to ask for: all that is wanted, or when that is much and half of it was sent, as much again. */
    private long portion(long demand) {
        long wanted = Math.min(demand, MOST);
        return wanted < MOST || due <= MOST / 2 ? Math.max(0, wanted - due) : 0;
    }

    /** Asks the publisher. Nobody is inside meanwhile, so that closing is not put off. */
    private void ask(Flow.Subscription given, long more) {
        asking = true;
        try {
            // Who cancelled before that has rung in vain.
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

    /** The stream is over, and the consumer knows. */
    private void end() {
        over = true;
        closeOnce();
        schema.close();
        bell.letGo();
        subscription.set(AsyncReader.NOTHING);
    }

    /** The stream is over before its time: the publisher is told, and the consumer if it does not know. */
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

    /** Whether the consumer cancelled, so that nothing went wrong. */
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
            // It was the consumer that ended it.
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
     * Ends the stream, if it is not over: the publisher is cancelled, on this thread, and the consumer is told that the
     * producer went away. Closing twice is fine.
     */
    @Override
    public void close() {
        if (closeOnce()) {
            schedule();
            leave();
        }
    }
}
