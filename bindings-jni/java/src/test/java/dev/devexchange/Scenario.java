package dev.devexchange;

import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Flow;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.Future;
import java.util.concurrent.SubmissionPublisher;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;

/** Programs that run in a separate JVM, without JUnit; see {@link JvmTest}. */
final class Scenario {
    private static final ByteBuffer NONE = null;

    private Scenario() {}

    public static void main(String[] arguments) throws Exception {
        switch (arguments[0]) {
            case "everything" -> everything();
            case "outstanding" -> outstanding();
            case "busy" -> busy();
            case "allocating" -> allocating();
            case "forgotten" -> forgotten();
            case "failing" -> failing();
            case "full" -> full();
            case "late" -> late();
            case "virtual" -> virtual();
            case "passing" -> passing();
            case "awaited" -> awaited();
            case "version" -> System.out.println("version " + DevExchange.version());
            case "halted" -> {
                DevExchange.version();
                System.out.println("main is done");
                Runtime.getRuntime().halt(0);
            }
            default -> throw new AssertionError(arguments[0]);
        }
        System.out.println("main is done");
    }

    private static Batch batch(Runnable release) {
        Field[] fields = {
            Field.of("n", Format.INT32).nullable(),
            Field.of("s", Format.INT8).withDictionary(Field.of("", Format.UTF8)),
            Field.of("l", Format.LIST).withChildren(Field.of("", Format.FLOAT64))
        };
        List<Node> nodes = List.of(
                Node.of(2, NONE),
                Node.of(2, Direct.bits("10"), Direct.ints(1, 2)),
                Node.of(2, NONE, Direct.bytes(1, 0)),
                Node.of(2, NONE, Direct.ints(0, 1, 2), Direct.text("ab")),
                Node.of(2, NONE, Direct.ints(0, 1, 2)),
                Node.of(2, NONE, Direct.doubles(1, 2)));
        try (Schema schema = Schema.batch(fields)) {
            return Batch.create(schema, Device.CPU, nodes, release);
        }
    }

    /** Virtual threads that wait for a source and for an allocator that need virtual threads themselves. */
    private static void virtual() throws Exception {
        ExecutorService threads = (ExecutorService)
                Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
        List<Future<?>> waiting = new ArrayList<>();
        try (Batch batch = batch(null);
                Schema schema = batch.schema();
                MemoryManager own = MemoryManager.of(onThreads(threads), null);
                MemoryManager limited = MemoryManager.limited(own, 100)) {
            Callable<String> pulls = () -> {
                BatchStream.Source source = () -> threads.submit(() -> batch.share()).get();
                try (BatchStream stream = BatchStream.of(schema, DeviceType.CPU, source, null);
                        Batch next = stream.next()) {
                    return next.toString();
                }
            };
            Callable<String> allocates = () -> {
                Tensor.allocate(limited, Device.CPU, DType.INT8, new long[] {4}, null).close();
                DeferredCleanup deferred = limited.deferCleanup();
                try (Memory memory = limited.allocate(MemoryRequest.of(Device.CPU, 4))) {
                    return memory.toString();
                } finally {
                    deferred.close();
                }
            };
            for (int i = 0; i < 4; i++) {
                waiting.add(threads.submit(pulls));
                waiting.add(threads.submit(allocates));
            }
            for (Future<?> each : waiting) {
                System.out.println(each.get(2, TimeUnit.MINUTES));
            }
            Callable<String> fails = () -> {
                try {
                    return limited.allocate(MemoryRequest.of(Device.CPU, 101)).toString();
                } catch (DevExchangeException e) {
                    boolean here = Stream.of(e.getStackTrace()).anyMatch(at -> at.getMethodName().contains("virtual"));
                    return e.statusName() + (here ? " here" : " elsewhere");
                }
            };
            System.out.println(threads.submit(fails).get(2, TimeUnit.MINUTES));
        }
        waitsForAnExporter(threads);
    }

    /** Far more tasks, one after the other, than can have direct memory of their own. */
    private static void passing() throws Exception {
        manyTasks(ForkJoinPool.commonPool(), 0, 20_000);
        manyTasks(run -> new Thread(run).start(), 50, 2000);
        if (Runtime.version().feature() >= 21) {
            manyTasks((Executor) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null), 50, 5000);
        }
    }

    /** In a pool that the caller helps, nobody may wait. */
    private static void manyTasks(Executor threads, int waiting, int count) {
        CountDownLatch over = new CountDownLatch(1);
        List<CompletableFuture<Boolean>> others = new ArrayList<>();
        for (int i = 0; i < waiting; i++) {
            long wanted = i;
            others.add(CompletableFuture.supplyAsync(() -> hasItsOwn(wanted, over), threads));
        }
        try (Tensor tensor = Tensor.create(Direct.longs(1, 2), DType.INT64, new long[] {2}, null)) {
            for (int i = 0; i < count; i++) {
                CompletableFuture.runAsync(() -> Tensor.importDlpack(tensor.exportShare()).close(), threads).join();
            }
        } finally {
            over.countDown();
        }
        others.forEach(each -> check(each.join(), "two threads had the same memory"));
    }

    private static boolean hasItsOwn(long wanted, CountDownLatch over) {
        Scratch mine = Scratch.get();
        mine.buffer.putLong(0, wanted);
        try {
            over.await();
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
        return mine == Scratch.get() && mine.buffer.getLong(0) == wanted;
    }

    /** The exporter gives no answer until a virtual thread hangs up, which needs the carrier. */
    private static void waitsForAnExporter(ExecutorService threads) throws Exception {
        Path path = Files.createTempDirectory("devexchange").resolve("socket");
        try (ServerSocketChannel exporter = ServerSocketChannel.open(StandardProtocolFamily.UNIX)) {
            exporter.bind(UnixDomainSocketAddress.of(path));
            Callable<String> connects = () -> {
                try (IpcClient client = IpcClient.connect(path.toString(), Duration.ofSeconds(60))) {
                    return client.toString();
                } catch (DevExchangeException e) {
                    return "no exporter: " + e.statusName();
                }
            };
            Future<String> connected = threads.submit(connects);
            threads.submit(() -> {
                exporter.accept().close();
                return null;
            });
            System.out.println(connected.get(2, TimeUnit.MINUTES));
        } finally {
            Files.deleteIfExists(path);
            Files.delete(path.getParent());
        }
    }

    /** An allocator that lets virtual threads do all its work. */
    private static Allocator onThreads(ExecutorService threads) {
        return new Allocator() {
            @Override
            public Allocation allocate(MemoryRequest request) throws Exception {
                ByteBuffer memory = Direct.room((int) request.bytes());
                return threads.submit(() -> Allocation.of(memory, null)).get();
            }

            @Override
            public void deferCleanup(boolean begin) throws Exception {
                threads.submit(() -> begin).get();
            }
        };
    }

    /** Calls every native method, with good and bad arguments. */
    private static void everything() throws InterruptedException {
        AtomicInteger released = new AtomicInteger();
        Runnable release = released::incrementAndGet;
        for (int i = 0; i < 20; i++) {
            Tensor made = Tensor.create(Direct.floats(1, 2, 3, 4), DType.FLOAT32, new long[] {2, 2}, release);
            try (Tensor tensor = Tensor.importDlpack(made.exportMove());
                    Tensor copy = tensor.copy();
                    Tensor share = copy.share();
                    Batch column = share.toColumn("x", Copy.ALWAYS);
                    Tensor legacy = Tensor.importDlpackLegacy(tensor.exportShareLegacy(DlpackRequest.DEFAULT))) {
                Dlpack.release(legacy.exportShare());
                check(tensor.planColumn().kind() == Plan.Kind.VIEW);
                check(legacy.byteBuffer().getFloat(12) == 4);
                check(column.root().planTensor().toString().equals("view"));
                check(tensor.toString().contains("float32"));
            }
            try (Batch batch = batch(release);
                    CStruct array = CStruct.arrowArray();
                    CStruct deviceArray = CStruct.arrowDeviceArray();
                    CStruct fields = CStruct.arrowSchema();
                    Schema schema = batch.schema()) {
                batch.exportShare(array.address());
                batch.exportShareDevice(deviceArray.address());
                schema.exportArrow(fields.address());
                check(schema.root().toString().contains("\"n\""));
                try (Batch both = Batch.importArrow(array.address(), fields.address());
                        Batch device = Batch.importArrowDevice(deviceArray.address(), schema)) {
                    check(both.column("s").getString(0).equals("b"));
                    check(device.column("l").list(1).getDouble(0) == 2);
                    check(device.column("n").nullCount() == 1);
                    device.column("l").child(0).toTensor(Copy.NEVER).close();
                    try (Batch columns = Batch.ofColumns(Map.of("first", both), null)) {
                        check(columns.column(0).asText(1).equals("{\"n\": null, \"s\": \"a\", \"l\": [2]}"));
                    }
                    fails(() -> Batch.ofColumns(List.of("a"), List.of(), null));
                    fails(() -> both.column("n").asText(9));
                }
                fails(() -> Batch.importArrow(array.address(), schema));
                fails(() -> Batch.importArrow(0, 0));
                fails(() -> batch.column(9));
                fails(() -> batch.exportShare(0));
                fails(() -> batch.column(0).toTensor(Copy.NEVER));
            }
            streams();
            managers(release);
            sharing();
            fails(() -> Tensor.importCudaArray(0, CudaArrayRequest.DEFAULT));
            fails(() -> made.exportShareCudaArray(CudaArrayRequest.DEFAULT, 0));
            fails(() -> Tensor.importDlpack(0));
            fails(() -> Tensor.importDlpack(3));
            fails(() -> Schema.importArrow(0));
            fails(() -> Schema.of(Field.of("x", "?")));
            fails(() -> Native.panic("on purpose"));
            fails(() -> Tensor.create(Direct.room(1), DType.FLOAT64, new long[] {-1}, release));
        }
        check(ReleaseQueue.flush(Duration.ofMinutes(2)));
        check(released.get() == 80);
        // The server of `sharing` finds out by itself that its importer is gone.
        for (int i = 0; i < 100_000 && DevExchange.outstanding() != 0; i++) {
            Thread.sleep(1);
        }
        check(DevExchange.outstanding() == 0, DevExchange.ledger());
        check(DevExchange.ledger().tensorImports().total() > 0);
        check(Status.name(4).equals("DEVX_CLOSED"));
        check(DeviceType.CUDA.toString().equals("cuda"));
    }

    /** The first value of a batch, which is closed. */
    private static int number(Batch taken) {
        try (Batch batch = taken) {
            return batch.root().getInt(0);
        }
    }

    private static void streams() throws InterruptedException {
        try (CStruct host = CStruct.arrowStream();
                CStruct device = CStruct.arrowDeviceStream()) {
            Streams.stream(3).exportArrow(host.address());
            BatchStream.importArrow(host.address()).exportArrowDevice(device.address());
            try (BatchStream stream = BatchStream.importArrowDevice(device.address());
                    Schema schema = stream.schema()) {
                check(stream.stream().mapToInt(Scenario::number).sum() == 3);
                check(stream.deviceType().equals(DeviceType.CPU));
                BatchStream broken = BatchStream.of(schema, DeviceType.CPU, () -> List.<Batch>of().get(0), null);
                fails(broken::next);
                broken.close();
            }
            fails(() -> BatchStream.importArrow(host.address()));
        }
        try (SubmissionPublisher<Batch> publisher = new SubmissionPublisher<>();
                AsyncReader reader = AsyncReader.create(true, null);
                Schema schema = Streams.schema()) {
            Map<String, String> metadata = Map.of("k", "v");
            AsyncWriter writer =
                    AsyncWriter.create(reader.handlerAddress(), schema, DeviceType.CPU, metadata, null);
            publisher.subscribe(writer);
            CountDownLatch taken = new CountDownLatch(1);
            CountDownLatch ended = new CountDownLatch(1);
            reader.subscribe(new Flow.Subscriber<>() {
                @Override
                public void onSubscribe(Flow.Subscription subscription) {
                    subscription.request(2);
                }

                @Override
                public void onNext(Batch batch) {
                    check(batch.metadata().equals(metadata) && number(batch) == 5);
                    taken.countDown();
                }

                @Override
                public void onError(Throwable thrown) {
                    ended.countDown();
                }

                @Override
                public void onComplete() {}
            });
            try (Batch batch = Streams.batch(5, null)) {
                publisher.submit(batch.share(metadata));
            }
            taken.await();
            publisher.closeExceptionally(new IllegalStateException("on purpose"));
            ended.await();
            writer.completion().toCompletableFuture().join();
            check(reader.metadata().equals(metadata) && reader.producerError().code() == 5);
            fails(reader::handlerAddress);
        }
    }

    private static void managers(Runnable release) {
        Allocator allocator = new Allocator() {
            @Override
            public Allocation allocate(MemoryRequest request) {
                if (request.bytes() > 100) {
                    throw new DevExchangeException(Status.OUT_OF_MEMORY, "too much");
                }
                return Allocation.of(Direct.room((int) request.bytes()), release);
            }

            @Override
            public MemoryInfo memoryInfo(int deviceId) {
                return new MemoryInfo(1, 2);
            }

            @Override
            public IpcHandle ipcHandle(long address) {
                return new IpcHandle(new byte[64], 0, address, 0);
            }

            @Override
            public Runnable pin(int deviceId, long address, long bytes, int hostFlags) {
                return null;
            }
        };
        try (MemoryManager manager = MemoryManager.of(allocator, release);
                MemoryManager limited = MemoryManager.limited(manager, 200);
                MemoryManager host = MemoryManager.hostOnly();
                CStruct array = CStruct.cudaArray()) {
            limited.initialize(0);
            try (Tensor tensor = Tensor.allocate(limited, Device.CPU, DType.INT8, new long[] {8}, null);
                    DeferredCleanup scope = manager.deferCleanup()) {
                fails(() -> tensor.exportShareCudaArray(CudaArrayRequest.DEFAULT, array.address()));
                check(!scope.isClosed());
            }
            fails(() -> limited.allocate(MemoryRequest.of(Device.CPU, 101)));
            check(manager.memoryInfo(0).totalBytes() == 2);
            check(manager.ipcHandle(77).bytes() == 77);
            manager.pin(0, Direct.room(8), HostFlags.NONE).close();
            manager.trim(0, 0);
            manager.reset(0);
            check(manager.statistics().refused() == 1);
            host.allocate(MemoryRequest.of(Device.CPU, 8)).close();
            fails(() -> host.ipcHandle(8));
            fails(() -> host.pin(0, 8, -1, 0));
            MemoryManager.driver().close();
            MemoryManager.managed().close();
            MemoryManager.pool(1, 1).close();
            MemoryManager.shareablePool(1, 1).close();
        }
    }

    private static void sharing() {
        String address = "@devexchange-java-scenario-" + ProcessHandle.current().pid();
        try (IpcServer server = IpcServer.bind(address);
                Tensor tensor = Tensor.allocateShared(DType.INT32, new long[] {2});
                Batch batch = batch(null)) {
            server.offer("tensor", tensor, Copy.NEVER);
            server.offer("batch", batch, Copy.IF_NEEDED);
            check(IpcServer.plan(tensor).kind() == Plan.Kind.VIEW && IpcServer.plan(batch).copyBytes() > 0);
            try (IpcClient client = IpcClient.connect(address);
                    Tensor imported = client.importTensor("tensor");
                    Batch rows = client.importBatch("batch")) {
                check(imported.elements() == 2 && rows.length() == 2);
                fails(() -> client.importTensor("other"));
            }
            check(server.withdraw("batch") && server.leases() >= 0);
            fails(() -> IpcServer.bind(address));
        }
        fails(() -> IpcClient.connect(address));
    }

    private static void check(boolean holds) {
        check(holds, "");
    }

    private static void check(boolean holds, Object otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    private static void fails(Runnable call) {
        try {
            call.run();
        } catch (DevExchangeException e) {
            return;
        }
        throw new AssertionError("not refused");
    }

    /** Ends with open objects here and with exports that others hold. */
    private static void outstanding() {
        Tensor tensor = Tensor.create(Direct.bytes(1), DType.INT8, new long[] {1}, () -> {});
        long exported = tensor.exportShare();
        CStruct array = CStruct.arrowArray();
        batch(() -> {}).exportMove(array.address());
        Tensor imported = Tensor.importDlpack(tensor.exportMove());
        System.out.println("outstanding " + DevExchange.outstanding() + (exported == 0 ? "?" : "") + imported);
    }

    /** Ends while a callback is running. */
    private static void busy() throws InterruptedException {
        CountDownLatch running = new CountDownLatch(1);
        Tensor.create(Direct.bytes(1), DType.INT8, new long[] {1}, () -> {
                    running.countDown();
                    try {
                        TimeUnit.HOURS.sleep(1);
                    } catch (InterruptedException e) {
                        throw new AssertionError(e);
                    }
                })
                .close();
        running.await();
    }

    /** Ends while threads wait for an allocator that does not answer, and while a thread asks it again. */
    private static void allocating() throws InterruptedException {
        CountDownLatch asked = new CountDownLatch(2);
        MemoryManager manager = MemoryManager.of(
                request -> {
                    asked.countDown();
                    TimeUnit.HOURS.sleep(1);
                    return null;
                },
                null);
        for (int i = 0; i < 2; i++) {
            Thread thread = new Thread(() -> manager.allocate(MemoryRequest.of(Device.CPU, 8)));
            thread.setDaemon(true);
            thread.setUncaughtExceptionHandler((which, thrown) -> System.out.println("told: " + thrown.getMessage()));
            thread.start();
        }
        asked.await();
        // After the library's shutdown hook the thread has an error; before it, the thread still waits.
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                manager.allocate(MemoryRequest.of(Device.CPU, 8));
            } catch (DevExchangeException e) {
                System.out.println("hook: " + e.getMessage());
            }
        }));
    }

    /** Exceptions of callbacks, whose text the caller gets. */
    private static void failing() {
        try (Schema schema = Schema.batch(Field.of("n", Format.INT32));
                BatchStream stream = BatchStream.of(schema, DeviceType.CPU, Scenario::brokenSource, null);
                MemoryManager manager = MemoryManager.of(Scenario::brokenAllocator, null)) {
            for (Runnable call : List.<Runnable>of(
                    stream::next, () -> manager.allocate(MemoryRequest.of(Device.CPU, 8)))) {
                try {
                    call.run();
                    throw new AssertionError("it did not fail");
                } catch (DevExchangeException refused) {
                    check(refused.getMessage().contains("broken"), refused.getMessage());
                }
            }
        }
    }

    private static Batch brokenSource() {
        throw new IllegalStateException("a broken source");
    }

    private static Allocation brokenAllocator(MemoryRequest request) {
        throw new DevExchangeException(Status.UNSUPPORTED, "a broken allocator");
    }

    /** All the memory that there is for direct buffers. */
    private static List<ByteBuffer> allDirectMemory() {
        List<ByteBuffer> all = new ArrayList<>();
        try {
            while (true) {
                all.add(ByteBuffer.allocateDirect(1024));
            }
        } catch (OutOfMemoryError full) {
            return all;
        }
    }

    /** The first call comes while there is no memory for direct buffers; the library can be used later all the same. */
    private static void late() {
        List<ByteBuffer> all = allDirectMemory();
        System.out.println("version " + DevExchange.version());
        try (Tensor tensor = Tensor.allocate(Device.CPU, DType.INT8, new long[] {1}, null)) {
            throw new AssertionError(tensor);
        } catch (OutOfMemoryError full) {
            all.clear();
        }
        System.gc();
        try (Tensor tensor = Tensor.allocate(Device.CPU, DType.INT8, new long[] {1}, null)) {
            check(tensor.bytes() == 1);
        }
    }

    /** The threads of the library start while there is no memory for direct buffers; later there is. */
    private static void full() throws InterruptedException {
        List<ByteBuffer> all = allDirectMemory();
        check(ReleaseQueue.pending() == 0);
        // An allocation that fails takes half a second.
        Thread.sleep(2000);
        all.clear();
        System.gc();
        check(ReleaseQueue.flush(Duration.ofMinutes(2)), "the release queue does not move");
    }

    /** The schema of a reader that only the waiting thread refers to. */
    private static void awaited() throws Exception {
        CompletableFuture<Long> handler = new CompletableFuture<>();
        Future<Schema> waiting = CompletableFuture.supplyAsync(() -> schemaOf(handler));
        long address = handler.get();
        for (int i = 0; i < 20; i++) {
            System.gc();
            Thread.sleep(20);
        }
        try (Schema schema = Streams.schema();
                AsyncWriter writer = AsyncWriter.create(address, schema, DeviceType.CPU);
                SubmissionPublisher<Batch> publisher = new SubmissionPublisher<>()) {
            publisher.subscribe(writer);
            try (Schema come = waiting.get()) {
                check(come.equals(schema), come);
            }
        }
    }

    private static Schema schemaOf(CompletableFuture<Long> handler) {
        AsyncReader reader = AsyncReader.create();
        handler.complete(reader.handlerAddress());
        try {
            return reader.schema(Duration.ofMinutes(2));
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }

    /** Leaves the closing to the garbage collector. */
    private static void forgotten() throws InterruptedException {
        batch(() -> {});
        try (MemoryManager manager = MemoryManager.of(request -> Allocation.of(Direct.room(8), () -> {}), null)) {
            manager.allocate(MemoryRequest.of(Device.CPU, 8));
        }
        Tensor.create(Direct.bytes(1), DType.INT8, new long[] {1}, null);
        while (DevExchange.outstanding() > 0) {
            System.gc();
            Thread.sleep(10);
        }
    }
}
