package dev.devexchange;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Limits the free bytes of the heap, from none to enough, so that a call runs out of memory at each object that it
 * makes. Each time nothing must be taken and nothing lost.
 */
final class HeapScenario {
    /** A number of the smallest objects, which are given up one after the other. */
    private static final int ROOM = 100;

    private static final Object[] SMALL = new Object[ROOM];
    private static final Object[] LARGE = new Object[1];

    private static final OutOfMemoryError FULL = new OutOfMemoryError("on purpose");

    private static final MemoryRequest EIGHT = MemoryRequest.of(Device.CPU, 8);

    /** The room of the heap when a question is answered; -1 for no limit. */
    private static volatile int squeezed = -1;

    private final AtomicInteger allocated = new AtomicInteger();
    private final AtomicInteger released = new AtomicInteger();
    private final ByteBuffer memory = Direct.room(48);
    private final Tensor matrix = Tensor.allocate(Device.CPU, DType.FLOAT64, new long[] {2, 3}, null);
    private final Batch table = matrix.toBatch(List.of(), Copy.IF_NEEDED);
    private final Schema schema = table.schema();
    private final MemoryManager host = MemoryManager.hostOnly();
    private final Allocation given = new Allocation(HostMemory.address(memory, "memory"), Device.CPU, released::incrementAndGet);
    private final CStruct array = CStruct.arrowArray();
    private final CStruct described = CStruct.arrowSchema();
    private final CStruct stream = CStruct.arrowStream();

    private HeapScenario() {}

    public static void main(String[] arguments) throws InterruptedException {
        HeapScenario heap = new HeapScenario();
        int refused = heap.all();
        // The other way to keep handles, for a thread that has many.
        Tensor[] many = new Tensor[200];
        for (int i = 0; i < many.length; i++) {
            many[i] = heap.matrix.share();
        }
        System.out.println("heap: " + (refused + heap.all()) + " calls had no memory");
    }

    private Map<String, Runnable> scenes() {
        long[] shape = {2, 3};
        Runnable release = () -> {};
        Map<String, Runnable> scenes = new LinkedHashMap<>();
        scenes.put("share", this::shareTensor);
        scenes.put("copy", () -> matrix.copy().close());
        scenes.put("import", this::importTensor);
        scenes.put("move", this::moveTensor);
        scenes.put("create", () -> Tensor.create(memory, DType.FLOAT64, shape, release).close());
        scenes.put("allocate", () -> Tensor.allocate(Device.CPU, DType.FLOAT64, shape, null).close());
        scenes.put("allocate with", () -> Tensor.allocate(host, Device.CPU, DType.FLOAT64, shape, null).close());
        scenes.put("allocate memory", () -> host.allocate(EIGHT).close());
        scenes.put("manager", () -> MemoryManager.hostOnly().close());
        scenes.put("own manager", () -> MemoryManager.of(request -> null, release).close());
        scenes.put("limited", () -> MemoryManager.limited(host, 1000).close());
        scenes.put("defer cleanup", () -> host.deferCleanup().close());
        scenes.put("share batch", () -> table.share().close());
        scenes.put("schema", () -> table.schema().close());
        scenes.put("share schema", () -> schema.share().close());
        scenes.put("to batch", () -> matrix.toBatch(List.of(), Copy.IF_NEEDED).close());
        scenes.put("to matrix", () -> table.toMatrix(Copy.ALWAYS, null).close());
        scenes.put("column", () -> table.column(0).toTensor(Copy.NEVER).close());
        scenes.put("import batch", this::importBatch);
        scenes.put("move batch", this::moveBatch);
        scenes.put("import schema", this::importSchema);
        scenes.put("stream", () -> BatchStream.of(schema, DeviceType.CPU, table::share, release).close());
        scenes.put("move stream", this::moveStream);
        scenes.put("struct", () -> CStruct.arrowArray().close());
        scenes.put("text", DevExchange::version);
        scenes.put("named", () -> matrix.toBatch(List.of("a", "b", "c"), Copy.IF_NEEDED).close());
        scenes.put("refuse", HeapScenario::refuse);
        scenes.put("pin", this::pin);
        return scenes;
    }

    private void importTensor() {
        long tensor = matrix.exportShare();
        Tensor taken;
        try {
            taken = Tensor.importDlpack(tensor);
        } catch (Throwable thrown) {
            Dlpack.release(tensor);
            throw thrown;
        }
        taken.close();
    }

    /** The ledger does not count shares, but what they keep. */
    private void shareTensor() {
        try (Tensor copy = matrix.copy()) {
            copy.share().close();
        }
    }

    private void moveTensor() {
        try (Tensor tensor = matrix.share()) {
            Dlpack.release(tensor.exportMove());
        }
    }

    private void importBatch() {
        table.exportShare(array.address());
        try {
            Batch.importArrow(array.address(), schema).close();
        } finally {
            array.release();
        }
    }

    private void importSchema() {
        schema.exportArrow(described.address());
        try {
            Schema.importArrow(described.address()).close();
        } finally {
            described.release();
        }
    }

    private void moveBatch() {
        try (Batch batch = table.share()) {
            batch.exportMove(array.address());
            array.release();
        }
    }

    private void moveStream() {
        try (BatchStream batches = BatchStream.of(schema, DeviceType.CPU, table::share, null)) {
            batches.exportArrow(stream.address());
            stream.release();
        }
    }

    private static void refuse() {
        try {
            Tensor.importDlpack(0);
        } catch (DevExchangeException refused) {
            require(refused.status() == Status.NULL_ARGUMENT, refused.toString());
        }
    }

    /** A refusal by a manager that reports when nobody uses it any more. */
    private void pin() {
        try (MemoryManager manager = MemoryManager.of(request -> null, () -> {})) {
            manager.pin(0, memory, -1);
        } catch (DevExchangeException refused) {
            require(refused.status() == Status.INVALID_ARGUMENT, refused.toString());
        }
    }

    /** Questions to Java on a thread of the library: the heap is full when Java answers. */
    private Map<String, Runnable> questions() {
        Map<String, Runnable> scenes = new LinkedHashMap<>();
        scenes.put("ask", this::ask);
        scenes.put("ask in vain", HeapScenario::askInVain);
        scenes.put("pull", this::pull);
        scenes.put("pull in vain", this::pullInVain);
        return scenes;
    }

    private void ask() {
        Allocator allocator = request -> {
            allocated.incrementAndGet();
            squeeze();
            return given;
        };
        try (MemoryManager manager = MemoryManager.of(allocator, () -> {})) {
            manager.allocate(EIGHT).close();
        }
    }

    private static void askInVain() {
        Allocator full = request -> {
            squeeze();
            throw FULL;
        };
        try (MemoryManager manager = MemoryManager.of(full, () -> {})) {
            manager.allocate(EIGHT);
        } catch (DevExchangeException refused) {
            require(refused.status() == Status.OUT_OF_MEMORY, refused.toString());
        }
    }

    private void pull() {
        BatchStream.Source source = () -> {
            Batch next = table.share();
            squeeze();
            return next;
        };
        try (BatchStream batches = BatchStream.of(schema, DeviceType.CPU, source, null)) {
            batches.next().close();
        }
    }

    private void pullInVain() {
        BatchStream.Source source = () -> {
            squeeze();
            throw FULL;
        };
        try (BatchStream batches = BatchStream.of(schema, DeviceType.CPU, source, null)) {
            batches.next();
        } catch (DevExchangeException refused) {
            require(refused.status() == Status.OUT_OF_MEMORY, refused.toString());
        }
    }

    /** The number of calls that had no memory. */
    private int all() throws InterruptedException {
        int refused = 0;
        for (Map.Entry<String, Runnable> scene : scenes().entrySet()) {
            refused += each(scene.getKey(), scene.getValue(), HeapScenario::run);
        }
        for (Map.Entry<String, Runnable> scene : questions().entrySet()) {
            refused += each(scene.getKey(), scene.getValue(), HeapScenario::runSqueezed);
        }
        return refused;
    }

    /** Runs a scene with a limit; returns whether that was enough. */
    private interface Run {
        boolean of(Runnable scene, int room);
    }

    private int each(String name, Runnable scene, Run run) throws InterruptedException {
        // Makes now whatever is made only once.
        runSqueezed(scene, -1);
        Dlpack.release(0);
        long before = DevExchange.outstanding();
        int refused = 0;
        int enough = 0;
        for (int room = 0; room <= ROOM && enough < 3; room++) {
            boolean done = run.of(scene, room);
            settle(name, room, before);
            refused += done ? 0 : 1;
            enough = done ? enough + 1 : 0;
        }
        return refused;
    }

    /** Whether there was memory enough. */
    private static boolean run(Runnable scene, int room) {
        fill(room);
        try {
            scene.run();
            return true;
        } catch (OutOfMemoryError none) {
            return false;
        } finally {
            LARGE[0] = null;
        }
    }

    private static boolean runSqueezed(Runnable scene, int room) {
        squeezed = room;
        try {
            scene.run();
            return true;
        } catch (OutOfMemoryError none) {
            return false;
        } catch (DevExchangeException refused) {
            require(refused.status() == Status.OUT_OF_MEMORY, refused.toString());
            return false;
        } finally {
            relax();
        }
    }

    private static synchronized void squeeze() {
        if (squeezed >= 0) {
            fill(squeezed);
        }
    }

    /** Ends the limit, and waits for a thread that fills the heap at this moment: it would stay full. */
    private static synchronized void relax() {
        squeezed = -1;
        LARGE[0] = null;
    }

    /** Fills the heap except for a number of small objects. */
    private static void fill(int room) {
        for (int i = 0; i < ROOM; i++) {
            SMALL[i] = SMALL[i] == null ? new byte[0] : SMALL[i];
        }
        LARGE[0] = null;
        for (int bytes = 1 << 12; bytes >= 1; bytes >>= 12) {
            try {
                while (true) {
                    LARGE[0] = new Object[] {LARGE[0], new byte[bytes]};
                }
            } catch (OutOfMemoryError full) {
                // This is the purpose.
            }
        }
        for (int i = 0; i < room; i++) {
            SMALL[i] = null;
        }
    }

    private void settle(String scene, int room, long before) throws InterruptedException {
        require(ReleaseQueue.flush(Duration.ofMinutes(2)), "the release queue does not move");
        for (int i = 0; i < 100_000 && DevExchange.outstanding() != before; i++) {
            Thread.sleep(1);
        }
        require(DevExchange.outstanding() == before, scene + " with room for " + room + ": " + DevExchange.ledger());
        require(ReleaseQueue.pending() == 0, scene + " with room for " + room + ": a release that does not come");
        require(released.get() == allocated.get(), scene + " with room for " + room + ": memory that is not given back");
    }

    private static void require(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }
}
