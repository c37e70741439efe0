package dev.devexchange;

import static dev.devexchange.DeviceScenario.CUDA;
import static dev.devexchange.DeviceScenario.check;
import static dev.devexchange.DeviceScenario.closeGate;
import static dev.devexchange.DeviceScenario.openGate;
import static dev.devexchange.DeviceScenario.refused;
import static dev.devexchange.DeviceScenario.same;
import static dev.devexchange.DeviceScenario.settle;

import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;

/** The part of {@link DeviceScenario} about batches: copied to a device, exchanged, and read back. */
final class DeviceBatches {
    private static final ByteBuffer NONE = null;

    private DeviceBatches() {}

    static void run() throws InterruptedException {
        AtomicInteger released = new AtomicInteger();
        try (DeviceStream stream = DeviceStream.create(CUDA);
                DeviceStream consumer = DeviceStream.create(CUDA)) {
            Batch host = batch(released::incrementAndGet);
            Batch device = host.copyTo(CUDA, stream);
            String why = "stream is null: a copy between cpu:0 and cuda:0 is queued on a stream";
            refused(Status.INVALID_STREAM, () -> host.copyTo(CUDA, null), why);
            try (Batch said = host.share(Map.of("k", "v"));
                    Batch copy = said.copyTo(CUDA, stream)) {
                same(Map.of("k", "v"), copy.metadata());
            }
            host.close();
            same(CUDA, device.device());
            refused(Status.DEVICE, () -> device.column("n").getInt(0), "device is cuda:0, not host memory");
            refused(Status.DEVICE, () -> device.column("t").getString(0), "device is cuda:0, not host memory");
            refused(Status.DEVICE, () -> device.column("n").valuesBuffer(), "device is cuda:0, not host memory");
            try (Batch back = device.copyTo(Device.CPU, consumer)) {
                holds(back);
            }
            for (String name : List.of("v", "u", "r", "m")) {
                refused(Status.DEVICE, () -> device.column(name).getObject(0), "device is cuda:0, not host memory");
                refused(Status.DEVICE, () -> device.column(name).asText(0), "device is cuda:0, not host memory");
            }
            Column numbered = device.column("n");
            same(1L, numbered.nullCount(consumer));
            same(1L, numbered.nullCount());
            same(0L, device.column("u").nullCount(consumer));
            columns(device, consumer);
            // Exported and imported again as Arrow, with an event.
            try (CStruct array = CStruct.arrowDeviceArray();
                    CStruct schema = CStruct.arrowSchema()) {
                device.exportShareDevice(array.address());
                try (Schema fields = device.schema()) {
                    fields.exportArrow(schema.address());
                }
                check(array.memory().getLong(Records.ARROW_DEVICE_ARRAY.at("sync_event")) != 0);
                refused(Status.DEVICE, () -> device.exportShare(array.address()), "cuda:0");
                try (Batch imported = Batch.importArrowDevice(array.address(), schema.address());
                        Batch back = imported.copyTo(Device.CPU, consumer);
                        Tensor numbers = imported.column("l").child(0).toTensor(Copy.NEVER)) {
                    holds(back);
                    readWhenTheWorkIsDone(imported, consumer);
                    imported.waitOn(consumer);
                    ByteBuffer values = Direct.room(16);
                    numbers.read(values, consumer);
                    same(2.5, values.getDouble(8));
                    imported.usedOn(consumer);
                }
            }
            views(device.column("v"), consumer);
            device.close();
            // An empty buffer is on no device.
            ArrayBuilder.of("n", Format.INT32, 0).buffer(NONE).buffer(Direct.room(0)).build(CUDA).close();
            settle();
            same(1, released.get());
            try (Batch again = batch(null)) {
                refused(Status.DEVICE, () -> again.producedOn(stream), "no streams");
                refused(Status.DEVICE, () -> again.usedOn(stream), "no streams");
                again.waitOn(stream);
                try (Batch copy = again.copyTo(CUDA, stream)) {
                    copy.producedOn(stream);
                    copy.waitOn(consumer);
                }
            }
        }
    }

    /** Data in memory that the host can read is read when the work that fills it is done, and not before. */
    private static void readWhenTheWorkIsDone(Batch device, DeviceStream stream) {
        for (DeviceType type : List.of(DeviceType.CUDA_HOST, DeviceType.CUDA_MANAGED)) {
            Device place = new Device(type, 0);
            same(0, closeGate(stream.value()));
            try (Batch part = device.column("n").share();
                    Batch copy = part.copyTo(place, stream)) {
                refused(Status.NOT_READY, () -> copy.root().getInt(0), "queued on stream 0x");
                openGate();
                stream.synchronize();
                same(3, copy.root().valuesBuffer().getInt(8));
                // Later work does not concern a copy.
                same(0, closeGate(stream.value()));
                same(3, copy.root().getInt(2));
                openGate();
            }
            try (Batch copy = device.copyTo(place, stream)) {
                stream.synchronize();
                holds(copy);
                copy.producedOn(stream);
                Column numbers = copy.column("n");
                for (int round = 0; round < 2; round++) {
                    same(0, closeGate(stream.value()));
                    String why = "queued on stream 0x" + Long.toHexString(stream.value());
                    refused(Status.NOT_READY, () -> numbers.getInt(0), why, "synchronize it first");
                    refused(Status.NOT_READY, () -> numbers.isNull(1), why);
                    refused(Status.NOT_READY, numbers::valuesBuffer, why);
                    refused(Status.NOT_READY, () -> copy.column("t").getString(0), why);
                    refused(Status.NOT_READY, () -> copy.copyTo(Device.CPU, null), why);
                    openGate();
                    stream.synchronize();
                    holds(copy);
                    same(1, numbers.getInt(0));
                    check(numbers.isNull(1));
                    same(3, numbers.valuesBuffer().getInt(8));
                    try (Batch host = copy.copyTo(Device.CPU, null)) {
                        holds(host);
                    }
                }
            }
        }
        refused(Status.INVALID_STREAM, () -> device.copyTo(Device.CPU, null), "stream is null", "cuda:0");
    }

    /** Strings, nulls, bools, a dictionary, lists, views, a union, runs, a map. */
    private static Batch batch(Runnable release) {
        Field[] fields = {
            Field.of("n", Format.INT32).nullable(),
            Field.of("t", Format.UTF8).nullable(),
            Field.of("b", Format.BOOL),
            Field.of("s", Format.INT8).withDictionary(Field.of("", Format.UTF8)),
            Field.of("l", Format.LIST).withChildren(Field.of("", Format.FLOAT64)),
            Field.of("v", Format.UTF8_VIEW),
            Field.denseUnion("u", Field.of("", Format.INT8), Field.of("", Format.UTF8)),
            Field.runEndEncoded("r", Format.INT32, Field.of("", Format.INT16)),
            Field.map("m", Field.of("", Format.INT8), Field.of("", Format.INT8))
        };
        List<Node> nodes = List.of(
                Node.of(3, NONE),
                Node.of(3, Direct.bits("101"), Direct.ints(1, 2, 3)),
                Node.of(3, Direct.bits("110"), Direct.ints(0, 2, 5, 5), Direct.text("ab\u00e4c")),
                Node.of(3, NONE, Direct.bits("011")),
                Node.of(3, NONE, Direct.bytes(1, 0, 1)),
                Node.of(2, NONE, Direct.ints(0, 1, 2), Direct.text("xy")),
                Node.of(3, NONE, Direct.ints(0, 1, 1, 2)),
                Node.of(2, NONE, Direct.doubles(1.5, 2.5)),
                Node.of(3, NONE, Direct.ints(1, 'x', 0, 0, 13, 0x33323130, 1, 2, 0, 0, 0, 0))
                        .withViewData(Direct.text("no"), Direct.text("__0123456789abc")),
                Node.of(3, Direct.bytes(1, 0, 1), Direct.ints(0, 0, 1)),
                Node.of(1, NONE, Direct.bytes(7)),
                Node.of(2, NONE, Direct.ints(0, 1, 2), Direct.text("ab")),
                Node.of(3),
                Node.of(2, NONE, Direct.ints(2, 3)),
                Node.of(2, NONE, Direct.shorts(5, 6)),
                Node.of(3, NONE, Direct.ints(0, 1, 1, 2)),
                Node.of(2, NONE),
                Node.of(2, NONE, Direct.bytes(1, 2)),
                Node.of(2, NONE, Direct.bytes(3, 4)));
        try (Schema schema = Schema.batch(fields)) {
            return Batch.create(schema, Device.CPU, nodes, release);
        }
    }

    private static void holds(Batch batch) {
        same(3L, batch.length());
        same(1, batch.column("n").getInt(0));
        check(batch.column("n").isNull(1));
        same(1L, batch.column("n").nullCount());
        same("ab", batch.column("t").getString(0));
        same("\u00e4c", batch.column("t").getString(1));
        same(null, batch.column("t").getString(2));
        check(!batch.column("b").getBoolean(0) && batch.column("b").getBoolean(2));
        same("y", batch.column("s").getString(0));
        same(2.5, batch.column("l").list(2).getDouble(0));
        same(List.of("x", "0123456789abc", ""), objects(batch.column("v")));
        same(List.of("a", (byte) 7, "b"), objects(batch.column("u")));
        same(List.of((short) 5, (short) 5, (short) 6), objects(batch.column("r")));
        same(Map.of((byte) 2, (byte) 4), batch.column("m").getMap(2));
    }

    /** Views over memory of a device; only the sizes of their data are in host memory. */
    private static void views(Column column, DeviceStream stream) {
        ArrayBuilder builder = ArrayBuilder.of(column.field(), 3);
        for (int i = 0; i < column.bufferCount() - 1; i++) {
            builder.address(column.bufferAddress(i));
        }
        try (Batch views = builder.viewSizes(2, 15).build(CUDA);
                Batch back = views.copyTo(Device.CPU, stream)) {
            same(List.of("x", "0123456789abc", ""), objects(back.root()));
        }
    }

    private static List<Object> objects(Column column) {
        return List.of(column.getObject(0), column.getObject(1), column.getObject(2));
    }

    /** A batch of batches that are not ready needs a stream, and is ordered by it. */
    private static void columns(Batch device, DeviceStream stream) {
        refused(Status.NOT_READY, () -> Batch.ofColumns(Map.of("all", device), null), "no stream");
        try (Batch both = Batch.ofColumns(List.of("a", "b"), List.of(device, device), stream);
                Batch back = both.copyTo(Device.CPU, stream)) {
            same(device.column("n").bufferAddress(1), both.column("b").child(0).bufferAddress(1));
            same("\u00e4c", back.column("b").child(1).getString(1));
        }
        try (Batch slice = device.slice(1, 1);
                Batch text = device.column(1).slice(1, 1).share();
                Batch back = slice.copyTo(Device.CPU, stream);
                Batch alone = text.copyTo(Device.CPU, stream)) {
            same("\u00e4c", back.column(1).getString(0));
            same("\u00e4c", alone.root().getString(0));
        }
        DeviceStream closed = DeviceStream.create(CUDA);
        closed.close();
        refused(Status.CLOSED, () -> Batch.ofColumns(Map.of("all", device), closed), "Batch.ofColumns");
        refused(Status.CLOSED, () -> device.column("n").nullCount(closed), "Column.nullCount");
    }
}
