package dev.devexchange;

import static dev.devexchange.DeviceScenario.CUDA;
import static dev.devexchange.DeviceScenario.SIX;
import static dev.devexchange.DeviceScenario.begin;
import static dev.devexchange.DeviceScenario.check;
import static dev.devexchange.DeviceScenario.closeGate;
import static dev.devexchange.DeviceScenario.filled;
import static dev.devexchange.DeviceScenario.finish;
import static dev.devexchange.DeviceScenario.flush;
import static dev.devexchange.DeviceScenario.foreign;
import static dev.devexchange.DeviceScenario.holds;
import static dev.devexchange.DeviceScenario.openGate;
import static dev.devexchange.DeviceScenario.refused;
import static dev.devexchange.DeviceScenario.same;
import static dev.devexchange.DeviceScenario.settle;
import static dev.devexchange.DeviceScenario.work;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.concurrent.atomic.AtomicInteger;

/** Programs with the CUDA Array Interface, for a JVM with a simulated CUDA driver; see {@link CudaArrayTest}. */
final class CudaArrayScenario {
    private static final CudaArrayRequest REQUEST = CudaArrayRequest.DEFAULT;

    private CudaArrayScenario() {}

    public static void main(String[] arguments) throws Exception {
        begin();
        switch (arguments[0]) {
            case "everything" -> everything();
            case "rounds" -> rounds();
            case "race" -> race();
            default -> throw new AssertionError(arguments[0]);
        }
        System.out.println("main is done");
    }

    private static void everything() throws InterruptedException {
        values();
        whatIsDescribed();
        order();
        producersWithoutAStream();
        masks();
        ownership();
        moves();
        badInput();
        finish();
    }

    private static long member(CStruct struct, String name) {
        return struct.memory().getLong(Records.CUDA_ARRAY.at(name));
    }

    private static void set(CStruct struct, String name, long value) {
        struct.memory().putLong(Records.CUDA_ARRAY.at(name), value);
    }

    private static void setInt(CStruct struct, String name, int value) {
        struct.memory().putInt(Records.CUDA_ARRAY.at(name), value);
    }

    private static long[] longs(long address, int count) {
        long[] values = new long[count];
        HostMemory.view(address, (long) count * Long.BYTES).asLongBuffer().get(values);
        return values;
    }

    /** Exports and imports again, with a consumer on its own stream, which only the struct orders. */
    private static void values() throws InterruptedException {
        try (DeviceStream producer = DeviceStream.create(CUDA);
                DeviceStream consumer = DeviceStream.create(CUDA);
                CStruct struct = CStruct.cudaArray();
                Tensor source = filled(producer)) {
            source.exportShareCudaArray(REQUEST, struct.address());
            same(producer.value(), member(struct, "stream"));
            same(source.address(), member(struct, "data"));
            check(!struct.isReleased());
            CudaArrayRequest on = REQUEST.withStream(consumer.value());
            try (Tensor imported = Tensor.importCudaArray(struct.address(), on);
                    Tensor target = Tensor.allocate(CUDA, DType.INT32, SIX, consumer)) {
                check(struct.isReleased());
                refused(Status.RELEASED, () -> Tensor.importCudaArray(struct.address(), on), "array.release is NULL");
                same(source.address(), imported.address());
                same(0, work(target.address(), imported.address(), 24, consumer.value()));
                imported.usedOn(consumer);
                holds(target, consumer);
            }
            settle();
        }
    }

    private static void whatIsDescribed() {
        try (DeviceStream stream = DeviceStream.create(CUDA);
                CStruct struct = CStruct.cudaArray();
                Tensor memory = filled(stream);
                Tensor view = Tensor.create(memory.address(), CUDA, DType.INT32, new long[] {2, 2}, new long[] {1, 3},
                        Flags.READ_ONLY, null)) {
            view.producedOn(stream);
            view.exportShareCudaArray(REQUEST, struct.address());
            same(3, struct.memory().getInt(0));
            same(1, struct.memory().getInt(Records.CUDA_ARRAY.at("read_only")));
            same(2L, member(struct, "ndim"));
            check(Arrays.equals(new long[] {2, 2}, longs(member(struct, "shape"), 2)));
            check(Arrays.equals(new long[] {4, 12}, longs(member(struct, "strides"), 2)));
            same("<i4", Native.text(member(struct, "typestr")));
            same(0L, member(struct, "mask"));
            try (CudaArray array = CudaArray.importCudaArray(struct.address(), REQUEST)) {
                same(null, array.mask());
                same(DType.INT32, array.tensor().dtype());
                same(CUDA, array.tensor().device());
                same(Flags.READ_ONLY, array.tensor().flags());
                check(Arrays.equals(new long[] {2, 2}, array.tensor().shape()));
                check(Arrays.equals(new long[] {1, 3}, array.tensor().strides()));
            }
            // A compact array has no strides, and an array for a consumer before version 3 has no stream.
            memory.exportShareCudaArray(REQUEST.withMaxVersion(2), struct.address());
            same(2, struct.memory().getInt(0));
            same(0L, member(struct, "strides"));
            same(CudaArray.NO_STREAM, member(struct, "stream"));
            struct.release();
            check(struct.isReleased());
            // Types that NumPy has no name for.
            try (Tensor halves = Tensor.allocate(CUDA, DType.BFLOAT16, SIX, null)) {
                refused(
                        Status.UNSUPPORTED,
                        () -> halves.exportShareCudaArray(REQUEST, struct.address()),
                        "dtype is bfloat16");
                check(struct.isReleased());
            }
        }
    }

    /** The consumer waits for the producer's stream, which waits at the end for the work that was noted. */
    private static void order() throws InterruptedException {
        try (DeviceStream producer = DeviceStream.create(CUDA);
                DeviceStream consumer = DeviceStream.create(CUDA);
                CStruct struct = CStruct.cudaArray();
                Tensor source = filled(producer);
                Tensor target = Tensor.allocate(CUDA, DType.INT32, SIX, null)) {
            source.exportShareCudaArray(REQUEST, struct.address());
            // Without a stream in the request, the user of the data must wait.
            Tensor imported = Tensor.importCudaArray(struct.address(), REQUEST);
            imported.waitOn(consumer);
            same(0, work(target.address(), imported.address(), 24, consumer.value()));
            imported.usedOn(consumer);
            imported.close();
            // The producer writes again without asking: its stream has been made to wait.
            source.write(Direct.ints(9, 9, 9, 9, 9, 9), producer);
            holds(target, consumer);
            settle();
            // Data that is ready, for a stream of the consumer.
            producer.synchronize();
            CudaArrayRequest ordered = REQUEST.withStream(consumer.value());
            source.exportShareCudaArray(ordered, struct.address());
            same(consumer.value(), member(struct, "stream"));
            struct.release();
        }
    }

    private static void producersWithoutAStream() {
        try (DeviceStream legacy = DeviceStream.of(CUDA, DeviceStream.LEGACY_DEFAULT);
                DeviceStream stream = DeviceStream.create(CUDA);
                DeviceStream consumer = DeviceStream.create(CUDA);
                CStruct struct = CStruct.cudaArray();
                Tensor source = filled(legacy)) {
            for (CudaArrayRequest.NoStream policy : CudaArrayRequest.NoStream.values()) {
                if (policy == CudaArrayRequest.NoStream.TRUST) {
                    legacy.synchronize();
                }
                source.exportShareCudaArray(REQUEST, struct.address());
                setInt(struct, "version", 2);
                CudaArrayRequest request = REQUEST.withNoStream(policy).withStream(consumer.value());
                try (Tensor imported = Tensor.importCudaArray(struct.address(), request);
                        Tensor target = Tensor.allocate(CUDA, DType.INT32, SIX, consumer)) {
                    same(0, work(target.address(), imported.address(), 24, consumer.value()));
                    imported.usedOn(consumer);
                    holds(target, consumer);
                }
            }
            stream.synchronize();
        }
    }

    private static void masks() throws InterruptedException {
        AtomicInteger released = new AtomicInteger();
        try (DeviceStream stream = DeviceStream.create(CUDA);
                CStruct struct = CStruct.cudaArray();
                CStruct of = CStruct.cudaArray();
                Tensor memory = filled(stream);
                Tensor bools = Tensor.allocate(CUDA, DType.BOOL, SIX, stream);
                Tensor five = Tensor.allocate(CUDA, DType.BOOL, new long[] {5}, stream)) {
            bools.write(Direct.bytes(1, 0, 1, 1, 0, 1), stream);
            bools.exportShareCudaArray(REQUEST, of.address());
            Tensor lent = foreign(memory, released);
            lent.producedOn(stream);
            lent.exportMoveCudaArray(REQUEST, struct.address());
            set(struct, "mask", of.address());
            refused(Status.UNSUPPORTED, () -> Tensor.importCudaArray(struct.address(), REQUEST), "mask is there");
            check(!struct.isReleased());

            setInt(of, "version", 7);
            refused(Status.VERSION, () -> CudaArray.importCudaArray(struct.address(), REQUEST), "mask: version is 7");
            setInt(of, "version", 3);
            try (CStruct shorter = CStruct.cudaArray()) {
                five.exportShareCudaArray(REQUEST, shorter.address());
                set(struct, "mask", shorter.address());
                refused(
                        Status.MISMATCH,
                        () -> CudaArray.importCudaArray(struct.address(), REQUEST),
                        "mask has shape [5]",
                        "[6]");
            }
            set(struct, "mask", of.address());
            CudaArray array = CudaArray.importCudaArray(struct.address(), REQUEST);
            ByteBuffer valid = Direct.room(6);
            array.mask().read(valid, stream);
            same(Direct.bytes(1, 0, 1, 1, 0, 1), valid);
            holds(array.tensor(), stream);
            same(DType.BOOL, array.mask().dtype());
            // The mask is part of the array: whichever of the two is closed last releases it.
            array.tensor().close();
            settle();
            same(0, released.get());
            array.close();
            array.close();
            settle();
            same(1, released.get());
        }
    }

    /** The release comes once: when the last user is gone, and after the work that was noted. */
    private static void ownership() throws InterruptedException {
        AtomicInteger released = new AtomicInteger();
        try (DeviceStream stream = DeviceStream.create(CUDA);
                CStruct struct = CStruct.cudaArray();
                Tensor memory = filled(stream);
                Tensor target = Tensor.allocate(CUDA, DType.INT32, SIX, null)) {
            Tensor lent = foreign(memory, released);
            lent.producedOn(stream);
            lent.exportShareCudaArray(REQUEST, struct.address());
            lent.close();
            flush();
            same(0, released.get());
            Tensor imported = Tensor.importCudaArray(struct.address(), REQUEST.withStream(stream.value()));
            Tensor share = imported.share();
            imported.close();
            same(0, closeGate(stream.value()));
            same(0, work(target.address(), share.address(), 24, stream.value()));
            share.usedOn(stream);
            share.close();
            flush();
            same(0, released.get());
            openGate();
            settle();
            same(1, released.get());
            stream.synchronize();
            // Nobody imports it.
            foreign(memory, released).exportMoveCudaArray(REQUEST, struct.address());
            CudaArray.release(struct.address());
            check(struct.isReleased());
            CudaArray.release(struct.address());
            settle();
            same(2, released.get());
            // Closing the struct frees its memory and releases its content.
            CStruct left = CStruct.cudaArray();
            foreign(memory, released).exportMoveCudaArray(REQUEST, left.address());
            left.close();
            settle();
            same(3, released.get());
        }
    }

    private static void moves() {
        try (DeviceStream stream = DeviceStream.create(CUDA);
                CStruct struct = CStruct.cudaArray();
                Tensor host = Tensor.create(Direct.ints(1), DType.INT32, new long[] {1}, null)) {
            Tensor tensor = filled(stream);
            refused(
                    Status.INVALID_STREAM,
                    () -> tensor.exportMoveCudaArray(REQUEST.withStream(0), struct.address()),
                    "stream is 0");
            check(!tensor.isClosed() && struct.isReleased());
            tensor.exportMoveCudaArray(REQUEST, struct.address());
            check(tensor.isClosed());
            Tensor.importCudaArray(struct.address(), REQUEST).close();
            refused(Status.DEVICE, () -> host.exportMoveCudaArray(REQUEST, struct.address()), "device is cpu:0");
            check(!host.isClosed());
        }
    }

    private static void badInput() {
        try (DeviceStream stream = DeviceStream.create(CUDA);
                CStruct struct = CStruct.cudaArray();
                Tensor tensor = filled(stream)) {
            tensor.exportShareCudaArray(REQUEST, struct.address());
            byte[] good = new byte[Records.CUDA_ARRAY.size()];
            struct.memory().get(0, good);
            ByteBuffer host = Direct.room(64);
            Runnable take = () -> Tensor.importCudaArray(struct.address(), REQUEST);
            set(struct, "stream", 0);
            refused(Status.INVALID_STREAM, take, "array: stream is 0");
            struct.memory().put(0, good);
            set(struct, "data", Direct.address(host));
            refused(Status.DEVICE, take, "data is 0x" + Long.toHexString(Direct.address(host)));
            struct.memory().put(0, good);
            // More bytes than the allocation has.
            ByteBuffer shape = Direct.longs(1L << 30);
            set(struct, "shape", Direct.address(shape));
            refused(Status.DEVICE, take);
            struct.memory().put(0, good);
            CudaArrayRequest zero = REQUEST.withStream(0);
            refused(Status.INVALID_STREAM, () -> Tensor.importCudaArray(struct.address(), zero), "stream is 0");
            CudaArrayRequest negative = REQUEST.withMaxVersion(-3);
            refused(Status.VERSION, () -> tensor.exportShareCudaArray(negative, struct.address()), "max_version is -3");
            struct.memory().put(0, good);
            check(!struct.isReleased());
            try (Tensor imported = Tensor.importCudaArray(struct.address(), REQUEST)) {
                holds(imported, stream);
            }
        }
    }

    private static void rounds() throws InterruptedException {
        AtomicInteger released = new AtomicInteger();
        try (DeviceStream stream = DeviceStream.create(CUDA);
                CStruct struct = CStruct.cudaArray();
                Tensor memory = filled(stream)) {
            Ledger before = DevExchange.ledger();
            for (int i = 0; i < 10_000; i++) {
                foreign(memory, released).exportMoveCudaArray(REQUEST, struct.address());
                try (Tensor imported = Tensor.importCudaArray(struct.address(), REQUEST)) {
                    same(6L, imported.elements());
                }
            }
            settle();
            same(10_000, released.get());
            Ledger after = DevExchange.ledger();
            same(10_000L, after.tensorExports().total() - before.tensorExports().total());
            same(10_000L, after.tensorImports().total() - before.tensorImports().total());
            same(before.owners().live(), after.owners().live());
        }
        finish();
    }

    /** A consumer that trusts a producer that is not ready. */
    private static void race() {
        try (DeviceStream producer = DeviceStream.create(CUDA);
                DeviceStream consumer = DeviceStream.create(CUDA);
                CStruct struct = CStruct.cudaArray();
                Tensor source = filled(producer);
                Tensor between = source.copyTo(CUDA, producer);
                Tensor target = Tensor.allocate(CUDA, DType.INT32, SIX, consumer)) {
            between.exportShareCudaArray(REQUEST, struct.address());
            set(struct, "stream", CudaArray.NO_STREAM);
            try (Tensor imported = Tensor.importCudaArray(struct.address(), REQUEST.withStream(consumer.value()))) {
                work(target.address(), imported.address(), 24, consumer.value());
            }
            producer.synchronize();
            consumer.synchronize();
        }
    }
}
