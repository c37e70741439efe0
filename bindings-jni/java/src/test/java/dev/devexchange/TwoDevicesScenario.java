package dev.devexchange;

import static dev.devexchange.DeviceScenario.CUDA;
import static dev.devexchange.DeviceScenario.SECOND;
import static dev.devexchange.DeviceScenario.SIX;
import static dev.devexchange.DeviceScenario.begin;
import static dev.devexchange.DeviceScenario.check;
import static dev.devexchange.DeviceScenario.closeGate;
import static dev.devexchange.DeviceScenario.context;
import static dev.devexchange.DeviceScenario.filled;
import static dev.devexchange.DeviceScenario.finish;
import static dev.devexchange.DeviceScenario.flush;
import static dev.devexchange.DeviceScenario.foreign;
import static dev.devexchange.DeviceScenario.freeHostMemory;
import static dev.devexchange.DeviceScenario.holds;
import static dev.devexchange.DeviceScenario.hostMemory;
import static dev.devexchange.DeviceScenario.openGate;
import static dev.devexchange.DeviceScenario.refused;
import static dev.devexchange.DeviceScenario.same;
import static dev.devexchange.DeviceScenario.settle;
import static dev.devexchange.DeviceScenario.useContext;
import static dev.devexchange.DeviceScenario.work;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.IntSupplier;

/** Two devices in one exchange, for a JVM with a simulated CUDA driver; see {@link DeviceTest}. */
final class TwoDevicesScenario {
    private static final ByteBuffer NONE = null;

    private TwoDevicesScenario() {}

    public static void main(String[] arguments) throws Exception {
        begin();
        same("everything", arguments[0]);
        long before = context();
        try (DeviceStream first = DeviceStream.create(CUDA);
                DeviceStream second = DeviceStream.create(SECOND)) {
            for (DeviceStream there : List.of(first, second)) {
                for (DeviceStream back : List.of(first, second)) {
                    tensors(first, there, back);
                }
            }
            batches(first, second);
            consumer(first, second);
            importOnADefaultStream(first);
            askOnADefaultStream(first);
            pinnedForTheOther(first);
            copiesOnAStreamOfPinnedMemory();
            askedForTheDeviceOfTheStream(second);
            settle();
        }
        check(context() == before);
        finish();
        System.out.println("main is done");
    }

    /** To the other device and back, on streams of either device. */
    private static void tensors(DeviceStream first, DeviceStream there, DeviceStream back) {
        Tensor source = filled(first);
        Tensor over = source.copyTo(SECOND, there);
        source.close();
        same(SECOND, over.device());
        over.checkPointers();
        Tensor again = over.copyTo(CUDA, back);
        over.close();
        same(CUDA, again.device());
        again.checkPointers();
        holds(again, first);
        again.close();
    }

    private static void batches(DeviceStream first, DeviceStream second) {
        try (Schema schema = Schema.batch(Field.of("n", Format.INT32).nullable(), Field.of("t", Format.UTF8))) {
            List<Node> nodes = List.of(
                    Node.of(2, NONE),
                    Node.of(2, Direct.bits("10"), Direct.ints(7, 0)),
                    Node.of(2, NONE, Direct.ints(0, 1, 3), Direct.text("abc")));
            Batch host = Batch.create(schema, Device.CPU, nodes, null);
            Batch here = host.copyTo(CUDA, first);
            host.close();
            Batch there = here.copyTo(SECOND, second);
            here.close();
            same(SECOND, there.device());
            try (Batch back = there.copyTo(Device.CPU, second)) {
                there.close();
                same(7, back.column("n").getInt(0));
                check(back.column("n").isNull(1));
                same("bc", back.column("t").getString(1));
            }
        }
    }

    /** A consumer on the other device runs after the producer, and the release after the consumer. */
    private static void consumer(DeviceStream first, DeviceStream second) throws InterruptedException {
        AtomicInteger released = new AtomicInteger();
        try (Tensor source = filled(first);
                Tensor memory = Tensor.allocate(CUDA, DType.INT32, SIX, null);
                Tensor target = Tensor.allocate(SECOND, DType.INT32, SIX, second)) {
            same(0, work(memory.address(), source.address(), 24, first.value()));
            Tensor produced = foreign(memory, released);
            produced.producedOn(first);
            long exported = produced.exportMove(DlpackRequest.DEFAULT.withStream(second.value()));
            Tensor imported = Tensor.importDlpack(exported, second);
            same(CUDA, imported.device());
            same(0, closeGate(second.value()));
            same(0, work(target.address(), imported.address(), 24, second.value()));
            imported.usedOn(second);
            imported.close();
            flush();
            same(0, released.get());
            openGate();
            settle();
            same(1, released.get());
            holds(target, second);
        }
    }

    /** The number of a default stream does not name its device; a {@code DeviceStream} does. */
    private static void importOnADefaultStream(DeviceStream first) throws InterruptedException {
        AtomicInteger released = new AtomicInteger();
        try (Tensor memory = filled(first);
                DeviceStream other = DeviceStream.of(SECOND, DeviceStream.LEGACY_DEFAULT)) {
            first.synchronize();
            long exported = foreign(memory, released).exportMove();
            try (Tensor imported = Tensor.importDlpack(exported, other)) {
                same(0, closeGate(DeviceStream.LEGACY_DEFAULT)); // of the first device, which is current
                imported.waitOn(first);
                Threads reader = Threads.start(1, () -> holds(imported, first));
                for (int i = 0; i < 10_000 && reader.areAlive(); i++) {
                    Thread.sleep(10);
                }
                boolean done = !reader.areAlive();
                openGate();
                reader.join();
                check(done);
                first.synchronize();
            }
            settle();
            same(1, released.get());
        }
    }

    /** A consumer named with a {@code DeviceStream} works on that stream, wherever the data is. */
    private static void askOnADefaultStream(DeviceStream first) {
        try (DeviceStream other = DeviceStream.of(SECOND, DeviceStream.LEGACY_DEFAULT);
                Tensor source = filled(first);
                Tensor memory = Tensor.allocate(CUDA, DType.INT32, SIX, null);
                Tensor target = Tensor.allocate(SECOND, DType.INT32, SIX, other)) {
            same(0, work(memory.address(), source.address(), 24, first.value()));
            memory.producedOn(first);
            Tensor imported = Tensor.importDlpack(memory.exportShare(DlpackRequest.DEFAULT.withStream(other)), other);
            same(0, onSecond(() -> work(target.address(), imported.address(), 24, other.value())));
            imported.usedOn(other);
            imported.close();
            holds(target, other);
            try (CStruct struct = CStruct.cudaArray()) {
                CudaArrayRequest request = CudaArrayRequest.DEFAULT.withStream(other);
                source.exportShareCudaArray(request, struct.address());
                Tensor array = Tensor.importCudaArray(struct.address(), request);
                same(0, onSecond(() -> work(target.address(), array.address(), 24, other.value())));
                array.usedOn(other);
                array.close();
            }
            holds(target, other);
            try (MemoryManager pool = MemoryManager.pool(1 << 20, 0)) {
                MemoryRequest request = MemoryRequest.of(CUDA, 24).withStream(other);
                refused(Status.INVALID_STREAM, () -> pool.allocate(request), "cuda:1", "cuda:0");
            }
        }
    }

    /**
     * Pinned memory has no streams: a default stream named with it is that of the device that the memory was made for.
     */
    private static void pinnedForTheOther(DeviceStream first) throws InterruptedException {
        Device pinned = new Device(DeviceType.CUDA_HOST, 0);
        same(0, useContext(1));
        long memory = hostMemory(24);
        same(0, useContext(0));
        AtomicInteger released = new AtomicInteger();
        try (DeviceStream named = DeviceStream.of(pinned, DeviceStream.LEGACY_DEFAULT);
                Tensor source = filled(first)) {
            first.synchronize();
            for (int way = 0; way < 2; way++) {
                Tensor tensor =
                        Tensor.create(memory, pinned, DType.INT32, SIX, null, 0, released::incrementAndGet);
                if (way == 1) {
                    tensor = Tensor.importDlpack(tensor.exportMove(), named);
                }
                long address = tensor.address();
                same(0, onSecond(() -> closeGate(DeviceStream.LEGACY_DEFAULT)));
                same(0, onSecond(() -> work(address, source.address(), 24, DeviceStream.LEGACY_DEFAULT)));
                if (way == 1) {
                    tensor.waitOn(first);
                    same(0, work(source.address(), address, 24, first.value()));
                    tensor.usedOn(first);
                } else {
                    tensor.usedOn(named);
                }
                tensor.close();
                flush();
                Thread.sleep(20);
                same(way, released.get());
                openGate();
                settle();
                same(way + 1, released.get());
            }
        }
        same(0, freeHostMemory(memory));
    }

    /** A default stream named with pinned memory is that of the device that a copy goes to. */
    private static void copiesOnAStreamOfPinnedMemory() {
        ByteBuffer read = Direct.room(24);
        try (DeviceStream named =
                        DeviceStream.of(new Device(DeviceType.CUDA_HOST, 0), DeviceStream.LEGACY_DEFAULT);
                Tensor host = Tensor.allocate(Device.CPU, DType.INT32, SIX, null);
                Batch column = host.toColumn("n", Copy.NEVER)) {
            host.write(Direct.ints(1, 2, 3, 4, 5, 6), named);
            host.read(read, named);
            same(Direct.ints(1, 2, 3, 4, 5, 6), read);
            try (Tensor there = host.copyTo(SECOND, named);
                    Batch rows = column.copyTo(SECOND, named)) {
                holds(there, named);
                same(SECOND, rows.device());
            }
        }
    }

    /**
     * A manager that the program implements is asked for memory that belongs to no device with the device of the
     * stream.
     */
    private static void askedForTheDeviceOfTheStream(DeviceStream second) {
        List<Device> asked = Collections.synchronizedList(new ArrayList<>());
        Allocator none = request -> {
            asked.add(request.device());
            throw new DevExchangeException(Status.OUT_OF_MEMORY, "there is none");
        };
        try (MemoryManager own = MemoryManager.of(none, null);
                DeviceStream legacy = DeviceStream.of(SECOND, DeviceStream.LEGACY_DEFAULT)) {
            for (DeviceType type : List.of(DeviceType.CUDA_HOST, DeviceType.CUDA_MANAGED)) {
                Device device = new Device(type, 0);
                for (DeviceStream stream : List.of(second, legacy)) {
                    refused(
                            Status.OUT_OF_MEMORY,
                            () -> Tensor.allocate(own, device, DType.INT32, SIX, stream),
                            "there is none");
                }
                Device wanted = new Device(type, 1);
                same(List.of(wanted, wanted), List.copyOf(asked));
                asked.clear();
            }
        }
    }

    /** Work while the other device is current. */
    private static int onSecond(IntSupplier work) {
        same(0, useContext(1));
        int code = work.getAsInt();
        same(0, useContext(0));
        return code;
    }
}
