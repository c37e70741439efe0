package dev.devexchange;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** Programs for a JVM of their own, without JUnit; see {@link JvmTest}. */
final class Scenario {
    private static final ByteBuffer NONE = null;

    private Scenario() {}

    public static void main(String[] arguments) throws Exception {
        switch (arguments[0]) {
            case "everything" -> everything();
            case "outstanding" -> outstanding();
            case "busy" -> busy();
            case "forgotten" -> forgotten();
            case "version" -> System.out.println("version " + DevExchange.version());
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

    /** Every native method, well and badly called. */
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
                }
                fails(() -> Batch.importArrow(array.address(), schema));
                fails(() -> Batch.importArrow(0, 0));
                fails(() -> batch.column(9));
                fails(() -> batch.exportShare(0));
                fails(() -> batch.column(0).toTensor(Copy.NEVER));
            }
            fails(() -> Tensor.importDlpack(0));
            fails(() -> Tensor.importDlpack(3));
            fails(() -> Schema.importArrow(0));
            fails(() -> Schema.of(Field.of("x", "?")));
            fails(() -> Native.panic("on purpose"));
            fails(() -> Tensor.create(Direct.room(1), DType.FLOAT64, new long[] {-1}, release));
        }
        check(ReleaseQueue.flush(Duration.ofSeconds(30)));
        check(released.get() == 40);
        check(DevExchange.outstanding() == 0);
        check(DevExchange.ledger().tensorImports().total() > 0);
        check(Status.name(4).equals("DEVX_CLOSED"));
        check(DeviceType.CUDA.toString().equals("cuda"));
    }

    private static void check(boolean holds) {
        if (!holds) {
            throw new AssertionError();
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

    /** Ends with things open here and with exports that others hold. */
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

    /** Leaves the closing to the garbage collector. */
    private static void forgotten() throws InterruptedException {
        batch(() -> {});
        Tensor.create(Direct.bytes(1), DType.INT8, new long[] {1}, null);
        while (DevExchange.outstanding() > 0) {
            System.gc();
            Thread.sleep(10);
        }
    }
}
