package dev.devexchange;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** Programs for a JVM with a simulated CUDA driver; see {@link DeviceTest}. Each ends with everything given back. */
final class DeviceScenario {
    static final String PROPERTY = "devexchange.test.device";

    static final Device CUDA = Device.cuda(0);
    static final Device SECOND = Device.cuda(1);
    static final long[] SIX = {6};

    /** Long enough for a busy machine. JUnit, and therefore {@link Check}, is not on the class path here. */
    private static final Duration PATIENCE = Duration.ofMinutes(2);

    static native int useContext(int device);

    static native long hostMemory(long bytes);

    static native int freeHostMemory(long memory);

    static native long context();

    static native int work(long to, long from, long bytes, long stream);

    static native int closeGate(long stream);

    static native void openGate();

    static native long stat(String name);

    static native String finding();

    private DeviceScenario() {}

    public static void main(String[] arguments) throws Exception {
        begin();
        switch (arguments[0]) {
            case "everything" -> everything();
            case "crowd" -> crowd();
            case "outstanding" -> outstanding();
            case "forgotten" -> forgotten();
            case "race" -> race();
            default -> throw new AssertionError(arguments[0]);
        }
        System.out.println("main is done");
    }

    static void begin() {
        System.load(System.getProperty(PROPERTY));
        check(useContext(0) == 0);
    }

    private static void everything() throws InterruptedException {
        long before = context();
        devices();
        streams();
        writeAndRead();
        whatTheHostCannotRead();
        exportsForAStream();
        producers();
        producedAgain();
        readWhenTheWorkIsDone();
        pointers();
        DeviceBatches.run();
        matrices();
        releases();
        check(context() == before);
        finish();
    }

    /** Checks that nothing is left here or on the device, and that the driver has no findings. */
    static void finish() throws InterruptedException {
        settle();
        check(DevExchange.releasesLost() == 0);
        same(0L, DevExchange.outstanding());
        same(0, ReleaseQueue.pending());
        same(0L, stat("live_device"));
        same(0L, stat("live_host"));
        same(0L, stat("live_managed"));
        same(0L, stat("live_streams"));
        same(null, finding());
    }

    static void settle() throws InterruptedException {
        long end = System.nanoTime() + PATIENCE.toNanos();
        while (DevExchange.releasesWaiting() > 0) {
            check(System.nanoTime() < end);
            Thread.sleep(1);
        }
        flush();
    }

    static void flush() throws InterruptedException {
        check(ReleaseQueue.flush(PATIENCE));
    }

    private static void devices() {
        same(2, Device.count(DeviceType.CUDA));
        DeviceInfo info = CUDA.info();
        check(info.name().contains("Simulated"));
        check(info.totalBytes() > 0 && info.freeBytes() > 0 && info.freeBytes() <= info.totalBytes());
        same(12090, info.driverVersion());
        same("53494d43-5544-4100-0000-000000000001", info.uuid().toString());
        check(!info.uuid().equals(SECOND.info().uuid()));
        Device third = Device.cuda(2);
        refused(Status.DEVICE, third::info, "device_id is 2", "there are 2 CUDA devices");
    }

    private static void streams() {
        DeviceStream stream = DeviceStream.create(CUDA);
        long value = stream.value();
        check(value > DeviceStream.PER_THREAD_DEFAULT);
        same(CUDA, stream.device());
        stream.synchronize();
        check(stream.toString().contains(Long.toHexString(value)));
        try (DeviceStream other = DeviceStream.of(CUDA, value)) {
            same(value, other.value());
            other.synchronize();
        }
        stream.synchronize();
        stream.close();
        stream.close();
        check(stream.isClosed());
        same("DeviceStream (closed)", stream.toString());
        refused(Status.CLOSED, stream::value, "DeviceStream.value", "the stream is closed");
        refused(Status.CLOSED, stream::device, "DeviceStream.device");
        refused(Status.CLOSED, stream::synchronize, "DeviceStream.synchronize");
        refused(Status.CLOSED, () -> Tensor.allocate(CUDA, DType.INT8, SIX, stream), "Tensor.allocate");
        refused(Status.CLOSED, () -> Tensor.importDlpack(0, stream), "Tensor.importDlpack");
        for (long wrong : new long[] {0, -1, Long.MIN_VALUE}) {
            refused(Status.INVALID_STREAM, () -> DeviceStream.of(CUDA, wrong), "stream is " + wrong);
        }
        for (long standard : new long[] {DeviceStream.LEGACY_DEFAULT, DeviceStream.PER_THREAD_DEFAULT}) {
            try (DeviceStream given = DeviceStream.of(CUDA, standard)) {
                same(standard, given.value());
                given.synchronize();
            }
        }
    }

    /** Columns that do not follow each other in memory are copied, on a stream. */
    private static void matrices() {
        try (DeviceStream stream = DeviceStream.create(CUDA);
                Batch host = ArrayBuilder.batch(3)
                        .child(ArrayBuilder.of("a", Format.INT32, 3).buffer(null).buffer(Direct.ints(1, 2, 3)))
                        .child(ArrayBuilder.of("b", Format.INT32, 3).buffer(null).buffer(Direct.ints(4, 5, 6)))
                        .build(Device.CPU);
                Batch batch = host.copyTo(CUDA, stream)) {
            refused(Status.NOT_READY, () -> batch.toMatrix(Copy.ALWAYS, null), "stream");
            try (Tensor matrix = batch.toMatrix(Copy.ALWAYS, stream);
                    Tensor back = matrix.copyTo(Device.CPU, stream)) {
                same(CUDA, matrix.device());
                same(3L, back.getLong(2, 0));
                same(4L, back.getLong(0, 1));
            }
        }
    }

    static Tensor filled(DeviceStream stream) {
        Tensor tensor = Tensor.allocate(CUDA, DType.INT32, SIX, stream);
        tensor.write(Direct.ints(1, 2, 3, 4, 5, 6), stream);
        return tensor;
    }

    static void holds(Tensor tensor, DeviceStream stream) {
        ByteBuffer read = Direct.room(24);
        tensor.read(read, stream);
        same(Direct.ints(1, 2, 3, 4, 5, 6), read);
    }

    private static void writeAndRead() {
        try (DeviceStream stream = DeviceStream.create(CUDA);
                DeviceStream other = DeviceStream.create(CUDA);
                DeviceStream second = DeviceStream.create(SECOND);
                DeviceStream perThread = DeviceStream.of(CUDA, DeviceStream.PER_THREAD_DEFAULT);
                Tensor tensor = filled(stream);
                Tensor plain = Tensor.allocate(CUDA, DType.INT32, SIX, null);
                Tensor copy = tensor.copyTo(CUDA, other);
                Tensor there = copy.copyTo(SECOND, second);
                Tensor pinned = tensor.copyTo(new Device(DeviceType.CUDA_HOST, 0), stream);
                Tensor managed = tensor.copyTo(new Device(DeviceType.CUDA_MANAGED, 0), stream);
                Tensor host = there.copyTo(Device.CPU, second)) {
            same(CUDA, tensor.device());
            same(SECOND, there.device());
            same(Flags.IS_COPIED, copy.flags());
            for (Tensor here : List.of(tensor, copy)) {
                holds(here, stream);
                holds(here, other);
                holds(here, perThread);
            }
            holds(there, second);
            same(6L, host.getLong(5));
            same(4, host.byteBuffer().getInt(12));
            plain.write(Direct.ints(1, 2, 3, 4, 5, 6), perThread);
            holds(plain, perThread);
            for (Tensor shared : List.of(pinned, managed)) {
                holds(shared, stream);
            }
            ByteBuffer part = Direct.ints(0, 1, 2, 3, 4, 5, 6, 7).position(4).limit(28);
            plain.write(part, other);
            same(4, part.position());
            holds(plain, other);
            refused(Status.INVALID_ARGUMENT, () -> tensor.write(Direct.room(20), stream), "20 bytes", "24");
            refused(Status.INVALID_ARGUMENT, () -> tensor.read(Direct.room(28), stream), "28 bytes", "24");
            refused(Status.INVALID_ARGUMENT, () -> tensor.read(ByteBuffer.allocate(24), stream), "into", "heap");
            long huge = 1L << 60;
            refused(
                    Status.OUT_OF_MEMORY,
                    () -> Tensor.allocate(CUDA, DType.INT8, new long[] {huge}, null),
                    "cuMemAlloc");
        }
    }

    private static void whatTheHostCannotRead() {
        try (DeviceStream stream = DeviceStream.create(CUDA);
                Tensor tensor = filled(stream);
                Tensor strided = Tensor.create(
                        tensor.address(), CUDA, DType.INT32, new long[] {3}, new long[] {2}, 0, null)) {
            refused(Status.DEVICE, tensor::byteBuffer, "device is cuda:0, not host memory");
            refused(Status.DEVICE, () -> tensor.getLong(0), "device is cuda:0, not host memory");
            refused(Status.DEVICE, tensor::copy, "cuda:0");
            try (Tensor collected = strided.copyTo(Device.CPU, stream)) {
                same(Direct.ints(1, 3, 5), collected.byteBuffer());
            }
            refused(Status.COPY_REQUIRED, () -> strided.read(Direct.room(12), stream), "[2]");
            try (Tensor readOnly = Tensor.create(
                    tensor.address(), CUDA, DType.INT32, SIX, null, Flags.READ_ONLY, null)) {
                refused(Status.READ_ONLY, () -> readOnly.write(Direct.room(24), stream), "READ_ONLY");
            }
        }
    }

    private static void exportsForAStream() {
        try (DeviceStream stream = DeviceStream.create(CUDA);
                DeviceStream consumer = DeviceStream.create(CUDA);
                Tensor tensor = filled(stream)) {
            for (long value : new long[] {consumer.value(), 1, 2}) {
                DlpackRequest request = DlpackRequest.DEFAULT.withStream(value);
                try (DeviceStream theirs = DeviceStream.of(CUDA, value);
                        Tensor imported = Tensor.importDlpack(tensor.exportShare(request), theirs);
                        Tensor legacy = Tensor.importDlpackLegacy(tensor.exportShareLegacy(request), theirs);
                        Tensor target = Tensor.allocate(CUDA, DType.INT32, SIX, theirs)) {
                    same(tensor.address(), imported.address());
                    // Stands for a kernel of the consumer, which only the consumer's own stream orders.
                    same(0, work(target.address(), imported.address(), 24, value));
                    holds(target, theirs);
                    holds(legacy, theirs);
                    imported.usedOn(theirs);
                    legacy.usedOn(theirs);
                }
            }
            DlpackRequest ambiguous = DlpackRequest.DEFAULT.withStream(0);
            refused(Status.INVALID_STREAM, () -> tensor.exportShare(ambiguous), "stream is 0");
            stream.synchronize();
            // Ready data, for which nobody has to wait.
            try (Tensor ready = Tensor.importDlpack(tensor.exportShare(DlpackRequest.DEFAULT), null)) {
                ready.waitOn(consumer);
                holds(ready, consumer);
            }
        }
        try (DeviceStream stream = DeviceStream.create(CUDA);
                Tensor host = Tensor.create(Direct.ints(1), DType.INT32, new long[] {1}, null)) {
            long exported = host.exportShare();
            refused(Status.INVALID_STREAM, () -> Tensor.importDlpack(exported, stream), "the cpu takes -1");
            Dlpack.release(exported);
            refused(Status.DEVICE, () -> host.usedOn(stream), "cpu:0", "no streams");
            refused(Status.DEVICE, () -> host.producedOn(stream), "cpu:0", "no streams");
            host.waitOn(stream);
        }
    }

    /** A tensor over foreign memory, filled on the producer's stream. */
    private static void producers() {
        try (DeviceStream producer = DeviceStream.create(CUDA);
                DeviceStream consumer = DeviceStream.create(CUDA);
                Tensor memory = Tensor.allocate(CUDA, DType.INT32, SIX, null);
                Tensor source = filled(producer)) {
            same(0, work(memory.address(), source.address(), 24, producer.value()));
            Tensor view = Tensor.create(memory.address(), CUDA, DType.INT32, SIX, null, 0, null);
            view.producedOn(producer);
            view.waitOn(consumer);
            holds(view, consumer);
            try (Tensor share = view.share()) {
                refused(Status.INVALID_ARGUMENT, () -> share.producedOn(consumer), "shared already");
            }
            view.producedOn(producer);
            long exported = view.exportMove(DlpackRequest.DEFAULT.withStream(consumer));
            try (Tensor imported = Tensor.importDlpack(exported, consumer)) {
                holds(imported, consumer);
            }
            refused(Status.CLOSED, () -> view.producedOn(producer), "Tensor.producedOn");
        }
    }

    /** Data that was ready is not read any more when more work is to fill it. */
    private static void producedAgain() {
        Device pinned = new Device(DeviceType.CUDA_HOST, 0);
        try (DeviceStream stream = DeviceStream.create(CUDA);
                Tensor tensor = Tensor.allocate(pinned, DType.INT32, SIX, null);
                Schema schema = Schema.of(Field.of("n", Format.INT32));
                CStruct array = CStruct.arrowDeviceArray()) {
            tensor.byteBuffer().putInt(0, 7);
            same(7L, tensor.getLong(0));
            same(0, closeGate(stream.value()));
            tensor.producedOn(stream);
            refused(Status.NOT_READY, tensor::byteBuffer, "queued on stream 0x", "synchronize it first");
            refused(Status.NOT_READY, () -> tensor.getLong(0), "queued on stream 0x");
            Batch.create(schema, pinned, List.of(Node.ofAddresses(6, 0, tensor.address())), null)
                    .exportMoveDevice(array.address());
            array.memory().putLong(Records.ARROW_DEVICE_ARRAY.at("sync_event"), 0);
            try (Batch batch = Batch.importArrowDevice(array.address(), schema)) {
                same(7, batch.root().getInt(0));
                batch.producedOn(stream);
                refused(Status.NOT_READY, () -> batch.root().valuesBuffer(), "queued on stream 0x");
                refused(Status.NOT_READY, () -> batch.root().getInt(0), "queued on stream 0x");
                openGate();
                stream.synchronize();
                same(7, batch.root().getInt(0));
                same(7, tensor.byteBuffer().getInt(0));
            }
        }
    }

    /** Data in memory that the host can read is read when the work that fills it is done, and not before. */
    private static void readWhenTheWorkIsDone() {
        for (DeviceType type : List.of(DeviceType.CUDA_HOST, DeviceType.CUDA_MANAGED)) {
            Device place = new Device(type, 0);
            try (DeviceStream stream = DeviceStream.create(CUDA);
                    Tensor source = filled(stream)) {
                same(0, closeGate(stream.value()));
                try (Tensor copy = source.copyTo(place, stream)) {
                    cannotBeRead(copy);
                    openGate();
                    stream.synchronize();
                    canBeRead(copy);
                    // Later work does not concern a copy.
                    same(0, closeGate(stream.value()));
                    canBeRead(copy);
                    // It does concern what was said to be filled on the stream.
                    copy.producedOn(stream);
                    for (int round = 0; round < 2; round++) {
                        cannotBeRead(copy);
                        openGate();
                        stream.synchronize();
                        canBeRead(copy);
                        same(0, closeGate(stream.value()));
                    }
                    openGate();
                }
                refused(Status.INVALID_STREAM, () -> source.read(Direct.room(24), null), "stream is null", "cuda:0");
                refused(Status.INVALID_STREAM, () -> source.write(Direct.room(24), null), "stream is null", "cuda:0");
                refused(Status.INVALID_STREAM, () -> source.copyTo(Device.CPU, null), "stream is null", "cuda:0");
                refused(Status.INVALID_STREAM, () -> source.copyTo(place, null), "stream is null", "cuda:0");
            }
        }
    }

    private static void cannotBeRead(Tensor tensor) {
        refused(Status.NOT_READY, () -> tensor.getLong(5), "queued on stream 0x", "synchronize it first");
        refused(Status.NOT_READY, () -> tensor.getDouble(5), "queued on stream 0x");
        refused(Status.NOT_READY, tensor::byteBuffer, "queued on stream 0x");
        refused(Status.NOT_READY, tensor::copy, "queued on stream 0x");
        refused(Status.NOT_READY, () -> tensor.copyTo(Device.CPU, null), "queued on stream 0x");
        refused(Status.NOT_READY, () -> tensor.read(Direct.room(24), null), "queued on stream 0x");
    }

    private static void canBeRead(Tensor tensor) {
        same(6L, tensor.getLong(5));
        same(6.0, tensor.getDouble(5));
        same(Direct.ints(1, 2, 3, 4, 5, 6), tensor.byteBuffer());
        ByteBuffer read = Direct.room(24);
        tensor.read(read, null);
        same(Direct.ints(1, 2, 3, 4, 5, 6), read);
        try (Tensor host = tensor.copyTo(Device.CPU, null)) {
            same(2L, host.getLong(1));
        }
    }

    private static void pointers() {
        try (DeviceStream stream = DeviceStream.create(CUDA);
                Tensor tensor = filled(stream);
                Tensor tooLong = Tensor.create(
                        tensor.address(), CUDA, DType.INT8, new long[] {1L << 24}, null, 0, null);
                Tensor elsewhere = Tensor.create(tensor.address(), SECOND, DType.INT32, SIX, null, 0, null);
                Tensor nowhere = Tensor.create(
                        Direct.address(Direct.room(64)), CUDA, DType.INT8, new long[] {4}, null, 0, null)) {
            tensor.checkPointers();
            refused(Status.DEVICE, tooLong::checkPointers);
            refused(Status.DEVICE, elsewhere::checkPointers, "cuda:1");
            refused(Status.DEVICE, nowhere::checkPointers);
            long address = tensor.address();
            long hostAddress = Direct.address(Direct.room(64));
            try (Schema schema = Schema.of(Field.of("n", Format.INT32));
                    Batch beyond = Batch.create(schema, CUDA, List.of(Node.ofAddresses(1 << 20, 0, address)), null);
                    Batch host = Batch.create(schema, CUDA, List.of(Node.ofAddresses(6, 0, hostAddress)), null)) {
                Batch there = Batch.create(schema, CUDA, List.of(Node.ofAddresses(6, 0, address)), null);
                there.checkPointers();
                there.close();
                refused(Status.CLOSED, there::checkPointers, "Batch.checkPointers");
                refused(Status.DEVICE, beyond::checkPointers, "array \"n\": buffers[1]: data 0x", "its allocation");
                refused(Status.DEVICE, host::checkPointers, "array \"n\": buffers[1]", "is not CUDA memory");
            }
        }
    }

    /** Memory that queued work uses is given back once, after that work, however it is given up. */
    private static void releases() throws InterruptedException {
        AtomicInteger released = new AtomicInteger();
        try (DeviceStream stream = DeviceStream.create(CUDA);
                DeviceStream other = DeviceStream.create(CUDA);
                Tensor memory = Tensor.allocate(CUDA, DType.INT32, SIX, null);
                Tensor target = Tensor.allocate(CUDA, DType.INT32, SIX, null)) {
            memory.write(Direct.ints(1, 2, 3, 4, 5, 6), stream);
            Tensor tensor = foreign(memory, released);
            tensor.producedOn(stream);
            Tensor imported = Tensor.importDlpack(tensor.exportMove());
            same(0, closeGate(stream.value()));
            same(0, work(target.address(), imported.address(), 24, stream.value()));
            imported.usedOn(stream);
            imported.usedOn(stream);
            imported.usedOn(other);
            imported.close();
            flush();
            TimeUnit.MILLISECONDS.sleep(20);
            flush();
            same(0, released.get());
            same(1L, DevExchange.releasesWaiting());
            openGate();
            settle();
            same(1, released.get());
            stream.synchronize();

            // Nothing waits for a consumer that does not name its stream.
            foreign(memory, released).close();
            settle();
            same(2, released.get());
        }
    }

    /** Memory that is foreign as far as the library knows. */
    static Tensor foreign(Tensor memory, AtomicInteger released) {
        return Tensor.create(
                memory.address(), CUDA, DType.INT32, SIX, null, 0, released::incrementAndGet);
    }

    /** Threads with a stream each pass tensors around. */
    private static void crowd() throws InterruptedException {
        AtomicInteger released = new AtomicInteger();
        try (DeviceStream producer = DeviceStream.create(CUDA);
                Tensor source = filled(producer)) {
            Threads.start(4, () -> consume(source, released)).join();
            settle();
        }
        same(4 * 25, released.get());
        finish();
    }

    private static void consume(Tensor source, AtomicInteger released) {
        check(useContext(0) == 0);
        try (DeviceStream own = DeviceStream.create(CUDA);
                DeviceStream perThread = DeviceStream.of(CUDA, DeviceStream.PER_THREAD_DEFAULT)) {
            for (int round = 0; round < 25; round++) {
                DeviceStream stream = round % 5 == 0 ? perThread : own;
                DlpackRequest request = DlpackRequest.DEFAULT.withStream(stream.value());
                Tensor target = Tensor.allocate(CUDA, DType.INT32, SIX, null);
                Tensor view = Tensor.create(
                        target.address(), CUDA, DType.INT32, SIX, null, 0, () -> {
                            target.close();
                            released.incrementAndGet();
                        });
                try (Tensor imported = Tensor.importDlpack(source.exportShare(request), stream);
                        view) {
                    check(work(target.address(), imported.address(), 24, stream.value()) == 0);
                    imported.usedOn(stream);
                    view.producedOn(stream);
                    view.usedOn(stream);
                    try (Tensor copy = view.copyTo(Device.CPU, stream)) {
                        same(6L, copy.getLong(5));
                    }
                }
            }
            own.synchronize();
            perThread.synchronize();
        }
    }

    /** Ends while work still uses memory that was given up. */
    private static void outstanding() {
        DeviceStream stream = DeviceStream.create(CUDA);
        Tensor tensor = filled(stream);
        Tensor view = Tensor.create(tensor.address(), CUDA, DType.INT32, SIX, null, 0, () -> {});
        stream.synchronize();
        closeGate(stream.value());
        view.usedOn(stream);
        view.close();
        System.out.println("waiting " + DevExchange.releasesWaiting());
        // The device does not continue before the end, for which nothing waits longer than the library says.
    }

    /** Leaves the closing of a stream to the garbage collector; memory is given back on it later. */
    private static void forgotten() throws InterruptedException {
        Tensor tensor = filled(DeviceStream.create(CUDA));
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(2);
        while (System.nanoTime() < end) {
            System.gc();
            Thread.sleep(50);
        }
        tensor.close();
        settle();
        same(0L, DevExchange.outstanding());
        same(null, finding());
    }

    /** Work of a consumer that did not wait for the producer. */
    private static void race() {
        try (DeviceStream producer = DeviceStream.create(CUDA);
                DeviceStream consumer = DeviceStream.create(CUDA);
                Tensor source = filled(producer);
                Tensor between = source.copyTo(CUDA, producer);
                Tensor target = Tensor.allocate(CUDA, DType.INT32, SIX, consumer)) {
            work(target.address(), between.address(), 24, consumer.value());
            producer.synchronize();
            consumer.synchronize();
        }
    }

    static void check(boolean holds) {
        if (!holds) {
            throw new AssertionError();
        }
    }

    static void same(Object expected, Object found) {
        if (expected == null ? found != null : !expected.equals(found)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }

    static void refused(int status, Runnable call, String... texts) {
        try {
            call.run();
        } catch (DevExchangeException e) {
            same(Status.name(status), e.statusName() + (e.status() == status ? "" : ": " + e.getMessage()));
            for (String text : texts) {
                if (!e.getMessage().contains(text)) {
                    throw new AssertionError(e.getMessage() + "\nhas no: " + text);
                }
            }
            return;
        }
        throw new AssertionError("not refused: " + String.join(", ", texts));
    }
}
