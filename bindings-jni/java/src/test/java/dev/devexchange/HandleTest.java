package dev.devexchange;

import static dev.devexchange.Check.refused;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import java.util.function.Supplier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Closed handles, and handles that are closed while they are used. */
@ExtendWith(Check.class)
class HandleTest {
    /** The methods that may be called on a closed object. */
    private static final Set<String> ALWAYS = Set.of("close", "isClosed", "toString", "equals", "hashCode", "getClass",
            "wait", "notify", "notifyAll");

    private static Batch batch() {
        try (Schema schema = Schema.batch(Field.of("x", Format.INT32))) {
            return Batch.create(
                    schema,
                    Device.CPU,
                    List.of(Node.of(3, (ByteBuffer) null), Node.of(3, null, Direct.ints(1, 2, 3))),
                    null);
        }
    }

    private static Tensor tensor() {
        return Tensor.create(Direct.ints(1, 2, 3, 4), DType.INT32, new long[] {4}, null);
    }

    private static MemoryManager manager() {
        return MemoryManager.hostOnly();
    }

    private static Memory memory() {
        try (MemoryManager manager = manager()) {
            return manager.allocate(MemoryRequest.of(Device.CPU, 4));
        }
    }

    private static DeferredCleanup deferred() {
        try (MemoryManager manager = manager()) {
            return manager.deferCleanup();
        }
    }

    private static IpcServer server() {
        return IpcServer.bind("@devexchange-java-handles-" + ProcessHandle.current().pid());
    }

    @Test
    void closingTwiceIsFine() {
        List<AutoCloseable> all = List.of(
                tensor(), batch(), Schema.batch(), CStruct.arrowArray(), CStruct.arrowSchema(),
                        CStruct.arrowDeviceArray(), CStruct.arrowStream(), CStruct.arrowDeviceStream(),
                        Streams.stream(1), AsyncReader.create(), CStruct.cudaArray(), MemoryManager.hostOnly(),
                        MemoryManager.of(request -> null, null), memory(), deferred(), server());
        for (AutoCloseable each : all) {
            try (each) {
                each.close();
            } catch (Exception e) {
                throw new AssertionError(e);
            }
        }
    }

    @Test
    void everyMethodOfAClosedThingSaysSo() throws IllegalAccessException {
        Batch batch = batch();
        Column column = batch.column(0);
        Schema schema = batch.schema();
        Tensor tensor = tensor();
        CStruct struct = CStruct.arrowArray();
        BatchStream stream = BatchStream.of(schema, DeviceType.CPU, List.<Batch>of().iterator());
        stream.close();
        batch.close();
        schema.close();
        tensor.close();
        struct.close();
        MemoryManager manager = manager();
        manager.close();
        Memory memory = memory();
        memory.close();
        IpcServer server = server();
        IpcClient client = IpcClient.connect("@devexchange-java-handles-" + ProcessHandle.current().pid());
        client.close();
        server.close();
        int checked = 0;
        for (Object closed :
                List.of(tensor, batch, column, schema, struct, stream, manager, memory, server, client)) {
            for (Method method : closed.getClass().getMethods()) {
                if (!Modifier.isStatic(method.getModifiers()) && !ALWAYS.contains(method.getName())) {
                    saysClosed(closed, method);
                    checked++;
                }
            }
        }
        assertTrue(checked > 85, "only " + checked + " methods");
    }

    private static void saysClosed(Object closed, Method method) throws IllegalAccessException {
        Object[] arguments = Arrays.stream(method.getParameterTypes()).map(HandleTest::anyOf).toArray();
        try {
            Object result = method.invoke(closed, arguments);
            throw new AssertionError(method + " returned " + result);
        } catch (InvocationTargetException e) {
            DevExchangeException refusal = assertInstanceOf(DevExchangeException.class, e.getCause(),
                    method.toString());
            assertEquals(Status.CLOSED, refusal.status(), method.toString());
            assertTrue(refusal.getMessage().contains("is closed"), refusal.getMessage());
            String called = closed.getClass().getSimpleName() + "." + method.getName() + ": ";
            // Default methods of an interface call methods that give their own names.
            assertTrue(
                    method.isDefault() || refusal.getMessage().startsWith(called),
                    method + ": " + refusal.getMessage());
        }
    }

    private static Object anyOf(Class<?> type) {
        if (type == int.class) {
            return 0;
        }
        if (type == long.class) {
            return 0L;
        }
        if (type == long[].class) {
            return new long[] {0};
        }
        if (type == Copy.class) {
            return Copy.NEVER;
        }
        if (type == DlpackRequest.class) {
            return DlpackRequest.DEFAULT;
        }
        if (type == CudaArrayRequest.class) {
            return CudaArrayRequest.DEFAULT;
        }
        if (type == MemoryRequest.class) {
            return MemoryRequest.of(Device.CPU, 1);
        }
        if (type == Tensor.class || type == Batch.class) {
            // A closed server does not look at it.
            return null;
        }
        if (type == String.class) {
            return "x";
        }
        if (type == ByteBuffer.class) {
            return Direct.room(1);
        }
        if (type == List.class) {
            return List.of();
        }
        if (type == Map.class) {
            return Map.of();
        }
        if (type == Consumer.class) {
            return (Consumer<Object>) any -> {};
        }
        if (type == Device.class) {
            return Device.CPU;
        }
        if (type == DeviceStream.class || type == CStruct.class) {
            // Without a driver there is no stream; a closed object says that it is closed before it looks at either.
            return null;
        }
        throw new AssertionError("no value of " + type);
    }

    /** A call that stayed inside would keep the object alive after it is closed. */
    @Test
    void everyMethodLeavesWhatItEntered() throws IllegalAccessException {
        String address = "@devexchange-java-handles-" + ProcessHandle.current().pid();
        try (Schema schema = Schema.batch(Field.of("x", Format.INT32));
                Tensor tensor = tensor();
                Batch batch = batch();
                CStruct struct = CStruct.arrowArray();
                BatchStream stream = BatchStream.of(schema, DeviceType.CPU, List.<Batch>of().iterator());
                MemoryManager manager = manager();
                Memory memory = memory();
                IpcServer server = server();
                IpcClient client = IpcClient.connect(address)) {
            List<Owned<?>> all = List.of(schema, tensor, batch, struct, stream, manager, memory, server, client);
            for (Owned<?> each : all) {
                leaves(each, each);
            }
            leaves(batch.column(0), batch);
            // As arguments, of calls that succeed and of calls that are refused.
            server.offer("tensor", tensor, Copy.ALWAYS);
            server.offer("batch", batch, Copy.ALWAYS);
            client.importTensor("tensor").close();
            client.importBatch("batch").close();
            MemoryManager.limited(manager, 1).close();
            Tensor.allocate(manager, Device.CPU, DType.INT8, new long[] {1}, null).close();
            refused(Status.INVALID_ARGUMENT, () -> server.offer("", tensor, Copy.ALWAYS));
            refused(Status.INVALID_ARGUMENT, () -> server.offer("", batch, Copy.ALWAYS));
            refused(Status.NULL_ARGUMENT, () -> Batch.importArrow(0, schema));
            refused(Status.MISMATCH, () -> Batch.create(schema, Device.CPU, List.of(), null));
            refused(Status.DEVICE, () -> BatchStream.of(schema, new DeviceType(99), () -> null, null));
            refused(Status.MISMATCH, () -> schema.exportArrow(struct));
            refused(Status.RELEASED, () -> Batch.importArrow(struct, schema));
            batch.exportShare(struct);
            all.forEach(each -> assertNobodyIsInside(each, "as an argument"));
        }
    }

    /** Calls each method of an object, and checks that it has left. */
    private static void leaves(Object called, Owned<?> entered) throws IllegalAccessException {
        for (Method method : called.getClass().getMethods()) {
            boolean handsOver = method.getReturnType() == long.class && method.getName().startsWith("export");
            if (!Modifier.isStatic(method.getModifiers()) && !ALWAYS.contains(method.getName()) && !handsOver) {
                Object[] arguments = Arrays.stream(method.getParameterTypes()).map(HandleTest::anyOf).toArray();
                try {
                    if (method.invoke(called, arguments) instanceof Owned<?> made) {
                        made.close();
                    }
                } catch (InvocationTargetException refusal) {
                    // A call that is refused leaves as well.
                }
                assertNobodyIsInside(entered, method.toString());
            }
        }
    }

    private static void assertNobodyIsInside(Owned<?> entered, String method) {
        entered.handle.enterAlone(method);
        entered.exitAlone();
    }

    @Test
    void closedSchemasAreNotUsedForImports() {
        Schema schema = Schema.batch();
        schema.close();
        refused(Status.CLOSED, () -> Batch.importArrow(0, schema), "Batch.importArrow", "the schema is closed");
        refused(Status.CLOSED, () -> Batch.importArrowDevice(0, schema), "Batch.importArrowDevice");
        assertEquals("Schema (closed)", schema.toString());
    }

    @Test
    void whatIsTakenFromAHandleOutlivesItsClosing() {
        Batch batch = batch();
        Column column = batch.column(0);
        Field field = column.field();
        String shown = column.toString();
        assertTrue(shown.startsWith("Column (") && shown.endsWith(", 3 rows)"), shown);
        Schema schema = batch.schema();
        batch.close();
        assertEquals("Batch (closed)", batch.toString());
        assertEquals("Column (closed)", column.toString());
        assertEquals("x", field.name());
        assertEquals("x", schema.columns().get(0).name());
        schema.close();
        Tensor tensor = tensor();
        tensor.close();
        assertEquals("Tensor (closed)", tensor.toString());
    }

    /**
     * The call fails with or without other calls, because there is no stream here; what counts is that the others do
     * not notice.
     */
    @Test
    void aCallThatWantsToBeAloneDisturbsNobody() throws InterruptedException {
        try (Tensor tensor = tensor()) {
            Threads reader = Threads.start(1, () -> {
                for (int i = 0; i < 100_000; i++) {
                    assertEquals(4, tensor.getLong(3));
                }
            });
            while (reader.areAlive()) {
                try {
                    tensor.producedOn(null);
                } catch (DevExchangeException e) {
                    assertEquals(Status.INVALID_ARGUMENT, e.status(), e.getMessage());
                    assertEquals("Tensor.producedOn: another thread is using the tensor", e.getMessage());
                } catch (NullPointerException e) {
                    continue;
                }
            }
            reader.join();
            assertThrows(NullPointerException.class, () -> tensor.producedOn(null));
            assertEquals(4, tensor.getLong(3));
        }
    }

    /** Like a call that began before another thread closes, and does most of its work after that. */
    @Test
    void whoeverIsInsideIsNotDisturbedByClosing() {
        Field field = Field.of("d", Format.INT8).withDictionary(Field.of("", Format.INT32));
        Batch batch;
        try (Schema schema = Schema.batch(field)) {
            batch = Batch.create(
                    schema,
                    Device.CPU,
                    List.of(
                            Node.of(2, (ByteBuffer) null),
                            Node.of(2, null, Direct.bytes(1, 0)),
                            Node.of(2, null, Direct.ints(10, 20))),
                    null);
        }
        // As if the batch had just come, and nothing were known of its schema.
        try (CStruct array = CStruct.arrowArray();
                CStruct schema = CStruct.arrowSchema();
                Schema own = batch.schema()) {
            batch.exportMove(array.address());
            own.exportArrow(schema.address());
            batch = Batch.importArrow(array.address(), schema.address());
        }
        Column column = batch.column(0);
        batch.enter("test");
        try {
            batch.close();
            assertEquals(20, column.object(0));
            Cell cell = column.value(1);
            assertEquals(10, cell.column().intAt(cell.row()));
        } finally {
            batch.exit();
        }
        refused(Status.CLOSED, () -> column.getObject(0), "Column.getObject: the batch is closed");
        Batch unread = batch();
        unread.enter("test");
        try {
            unread.close();
            assertEquals(3, unread.isInside().length);
        } finally {
            unread.exit();
        }
    }

    @Test
    void closingWhileOthersReadIsSafe() throws InterruptedException {
        AtomicLong reads = new AtomicLong();
        for (int round = 0; round < 200; round++) {
            Tensor tensor = tensor();
            Batch batch = batch();
            Column column = batch.column(0);
            CountDownLatch started = new CountDownLatch(3);
            Threads readers = Threads.start(3, () -> {
                started.countDown();
                DevExchangeException end = assertThrows(DevExchangeException.class, () -> {
                    while (true) {
                        assertEquals(4, tensor.getLong(3));
                        assertEquals(2, column.getInt(1));
                        tensor.share().close();
                        tensor.copy().close();
                        batch.share().close();
                        column.toTensor(Copy.ALWAYS).close();
                        reads.incrementAndGet();
                    }
                });
                assertEquals(Status.CLOSED, end.status());
            });
            started.await();
            tensor.close();
            batch.close();
            readers.join();
        }
        assertTrue(reads.get() > 0, "nobody has read anything");
    }

    /** Code that logs an object does not know what others do with it. */
    @Test
    void closingWhileOthersShowItIsSafe() throws Exception {
        List<Supplier<AutoCloseable>> things = List.of(
                HandleTest::tensor,
                HandleTest::batch,
                HandleTest::manager,
                () -> Schema.batch(Field.of("x", Format.INT32)),
                () -> {
                    try (Schema schema = Schema.batch()) {
                        return BatchStream.of(schema, DeviceType.CPU, () -> null, null);
                    }
                });
        for (Supplier<AutoCloseable> make : things) {
            for (int round = 0; round < 500; round++) {
                AutoCloseable thing = make.get();
                CountDownLatch shown = new CountDownLatch(1);
                Threads shower = Threads.start(1, () -> {
                    try {
                        while (!thing.toString().contains("closed")) {
                            shown.countDown();
                        }
                    } finally {
                        shown.countDown();
                    }
                });
                shown.await();
                thing.close();
                shower.join();
            }
        }
    }
}
