import dev.devexchange.Batch;
import dev.devexchange.BatchStream;
import dev.devexchange.Column;
import dev.devexchange.Copy;
import dev.devexchange.CudaArrayRequest;
import dev.devexchange.DType;
import dev.devexchange.DevExchange;
import dev.devexchange.DevExchangeException;
import dev.devexchange.Device;
import dev.devexchange.DeviceStream;
import dev.devexchange.DeviceType;
import dev.devexchange.DlpackRequest;
import dev.devexchange.Field;
import dev.devexchange.Flags;
import dev.devexchange.Format;
import dev.devexchange.Node;
import dev.devexchange.ReleaseQueue;
import dev.devexchange.Schema;
import dev.devexchange.Tensor;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;

/** Java in the soak (soak.py): makes things, hands them on, takes them for good, as described in languages.py. */
public final class Soak {
    private static final int DLPACK = 0, DLPACK_LEGACY = 1, CUDA_ARRAY = 2, ARRAY = 3, DEVICE_ARRAY = 4, STREAM = 5;
    private static final int SHARE = 1, FORGET = 2;
    private static final int SCHEMA_AT = 128, BATCHES = 2;
    private static final DType[] TYPES = {DType.INT64, DType.FLOAT64, DType.INT32};
    private static final ByteBuffer NONE = null;

    private Soak() {}

    /** The things to make, and their place. */
    private record Spec(int dtype, long[] shape, long base, boolean readOnly, boolean onDevice) {
        static Spec of(long[] numbers) {
            long[] shape = new long[(int) numbers[1]];
            System.arraycopy(numbers, 2, shape, 0, shape.length);
            return new Spec((int) numbers[0], shape, numbers[5], numbers[6] != 0, numbers[7] == 2);
        }

        int elements() {
            long total = 1;
            for (long extent : shape) {
                total *= extent;
            }
            return (int) total;
        }

        Device device() {
            return onDevice ? new Device(DeviceType.CUDA, 0) : Device.CPU;
        }

        DeviceStream stream() {
            return onDevice ? DeviceStream.of(device(), DeviceStream.LEGACY_DEFAULT) : null;
        }

        DlpackRequest request(boolean legacy) {
            long stream = onDevice ? DeviceStream.LEGACY_DEFAULT : DlpackRequest.NO_SYNC;
            return new DlpackRequest(legacy ? 0 : 1, legacy ? 0 : 3, stream, Copy.NEVER);
        }
    }

    private static final CudaArrayRequest CUDA_REQUEST =
            new CudaArrayRequest(3, CudaArrayRequest.NoStream.LEGACY_DEFAULT, DeviceStream.LEGACY_DEFAULT);

    // ---- what Java makes ----

    private static ByteBuffer values(Spec spec, int dtype) {
        int n = spec.elements();
        ByteBuffer memory = ByteBuffer.allocateDirect(8 * n).order(ByteOrder.nativeOrder());
        for (int k = 0; k < n; k++) {
            switch (dtype) {
                case 0 -> memory.putLong(8 * k, spec.base + k);
                case 1 -> memory.putDouble(8 * k, spec.base + k);
                default -> memory.putInt(4 * k, (int) (spec.base + k));
            }
        }
        return memory;
    }

    private static Tensor tensor(Spec spec) {
        long flags = spec.readOnly ? Flags.READ_ONLY : Flags.NONE;
        ByteBuffer memory = values(spec, spec.dtype);
        Tensor host = Tensor.create(memory, TYPES[spec.dtype], spec.shape, null, flags, null);
        if (!spec.onDevice) {
            return host;
        }
        try (host) {
            return host.copyTo(spec.device(), spec.stream());
        }
    }

    private static Batch batch(Spec spec) {
        int n = spec.elements();
        Field[] fields = {Field.of("n", Format.INT64).nullable(), Field.of("x", Format.FLOAT64)};
        List<Node> nodes = List.of(
                Node.of(n, NONE), Node.of(n, NONE, values(spec, 0)), Node.of(n, NONE, values(spec, 1)));
        try (Schema schema = Schema.batch(fields)) {
            Batch host = Batch.create(schema, Device.CPU, nodes, null);
            if (!spec.onDevice) {
                return host;
            }
            try (host) {
                return host.copyTo(spec.device(), spec.stream());
            }
        }
    }

    private static BatchStream stream(Spec spec) {
        try (Batch one = batch(spec);
                Schema schema = one.schema()) {
            List<Batch> batches = IntStream.range(0, BATCHES).mapToObj(k -> one.share()).toList();
            return BatchStream.of(schema, spec.device().type(), batches.iterator());
        }
    }

    private static AutoCloseable make(int protocol, Spec spec) {
        return protocol <= CUDA_ARRAY ? tensor(spec) : protocol < STREAM ? batch(spec) : stream(spec);
    }

    // ---- what Java sees ----

    private static void require(boolean fact, Object what) {
        if (!fact) {
            throw new IllegalStateException("not as it was made: " + what);
        }
    }

    private static void check(Spec spec, Tensor tensor) {
        require(tensor.dtype().equals(TYPES[spec.dtype]), tensor);
        require(Arrays.equals(tensor.shape(), spec.shape), tensor);
        require(Flags.has(tensor.flags(), Flags.READ_ONLY) == spec.readOnly, tensor);
        if (spec.onDevice) {
            try (Tensor copy = tensor.copyTo(Device.CPU, spec.stream())) {
                checkLast(spec, copy);
            }
        } else {
            checkLast(spec, tensor);
        }
    }

    private static void checkLast(Spec spec, Tensor tensor) {
        long[] last = spec.shape.clone();
        for (int k = 0; k < last.length; k++) {
            last[k]--;
        }
        double found = spec.dtype == 1 ? tensor.getDouble(last) : tensor.getLong(last);
        require(found == spec.base + spec.elements() - 1, tensor);
    }

    private static void check(Spec spec, Batch batch) {
        if (spec.onDevice) {
            try (Batch copy = batch.copyTo(Device.CPU, spec.stream())) {
                checkColumn(spec, copy);
            }
        } else {
            checkColumn(spec, batch);
        }
    }

    private static void checkColumn(Spec spec, Batch batch) {
        Column n = batch.column("n");
        long last = spec.elements() - 1;
        require(n.length() == last + 1 && n.getLong(last) == spec.base + last, batch);
    }

    private static void check(Spec spec, BatchStream stream) {
        int given = 0;
        for (Batch batch = stream.next(); batch != null; batch = stream.next()) {
            try (Batch each = batch) {
                check(spec, each);
            }
            given++;
        }
        require(given == BATCHES, stream);
    }

    private static void check(Spec spec, AutoCloseable thing) {
        if (thing instanceof Tensor tensor) {
            check(spec, tensor);
        } else if (thing instanceof Batch batch) {
            check(spec, batch);
        } else {
            check(spec, (BatchStream) thing);
        }
    }

    // ---- in and out ----

    private static AutoCloseable take(int protocol, Spec spec, long address) {
        return switch (protocol) {
            case DLPACK -> spec.onDevice
                    ? Tensor.importDlpack(address, spec.stream())
                    : Tensor.importDlpack(address);
            case DLPACK_LEGACY -> spec.onDevice
                    ? Tensor.importDlpackLegacy(address, spec.stream())
                    : Tensor.importDlpackLegacy(address);
            case CUDA_ARRAY -> Tensor.importCudaArray(address, CUDA_REQUEST);
            case ARRAY -> Batch.importArrow(address, address + SCHEMA_AT);
            case DEVICE_ARRAY -> Batch.importArrowDevice(address, address + SCHEMA_AT);
            case STREAM -> BatchStream.importArrow(address);
            default -> BatchStream.importArrowDevice(address);
        };
    }

    private static long give(int protocol, Spec spec, AutoCloseable thing, boolean share, long target) {
        if (thing instanceof Tensor tensor) {
            return giveTensor(protocol, spec, tensor, share, target);
        }
        if (thing instanceof Batch batch) {
            giveBatch(protocol, batch, share, target);
        } else if (protocol == STREAM) {
            ((BatchStream) thing).exportArrow(target);
        } else {
            ((BatchStream) thing).exportArrowDevice(target);
        }
        return target;
    }

    private static long giveTensor(int protocol, Spec spec, Tensor tensor, boolean share, long target) {
        if (protocol == CUDA_ARRAY) {
            if (share) {
                tensor.exportShareCudaArray(CUDA_REQUEST, target);
            } else {
                tensor.exportMoveCudaArray(CUDA_REQUEST, target);
            }
            return target;
        }
        DlpackRequest request = spec.request(protocol == DLPACK_LEGACY);
        if (protocol == DLPACK_LEGACY) {
            return share ? tensor.exportShareLegacy(request) : tensor.exportMoveLegacy(request);
        }
        return share ? tensor.exportShare(request) : tensor.exportMove(request);
    }

    private static void giveBatch(int protocol, Batch batch, boolean share, long target) {
        try (Schema schema = batch.schema()) {
            if (protocol == ARRAY && share) {
                batch.exportShare(target);
            } else if (protocol == ARRAY) {
                batch.exportMove(target);
            } else if (share) {
                batch.exportShareDevice(target);
            } else {
                batch.exportMoveDevice(target);
            }
            schema.exportArrow(target + SCHEMA_AT);
        }
    }

    // ---- what soak.py calls ----

    /** Makes {@code out.length} things. {@code out} has the addresses of the structs that belong to the consumer. */
    public static long[] make(int protocol, long[] numbers, long[] out, int flags) throws Exception {
        Spec spec = Spec.of(numbers);
        for (int i = 0; i < out.length; i++) {
            AutoCloseable thing = make(protocol, spec);
            out[i] = give(protocol, spec, thing, (flags & SHARE) != 0, out[i]);
            leave(thing, flags);
        }
        return out;
    }

    /** Takes things, checks them, and hands them on. */
    public static long[] handOn(int from, int to, long[] numbers, long[] in, long[] out, int flags) throws Exception {
        Spec spec = Spec.of(numbers);
        for (int i = 0; i < in.length; i++) {
            AutoCloseable thing = take(from, spec, in[i]);
            if (from < STREAM) {
                check(spec, thing);
            }
            out[i] = give(to, spec, thing, (flags & SHARE) != 0, out[i]);
            leave(thing, flags);
        }
        return out;
    }

    /** Takes things for good. */
    public static void end(int from, long[] numbers, long[] in, int flags) throws Exception {
        Spec spec = Spec.of(numbers);
        for (long address : in) {
            AutoCloseable thing = take(from, spec, address);
            check(spec, thing);
            leave(thing, flags);
        }
    }

    /** Offers things that must not be taken. */
    public static void refuse(int from, long[] numbers, long[] in) throws Exception {
        Spec spec = Spec.of(numbers);
        for (long address : in) {
            try {
                take(from, spec, address).close();
            } catch (DevExchangeException expected) {
                continue;
            }
            throw new IllegalStateException("a struct with an error in it was taken");
        }
    }

    private static void leave(AutoCloseable thing, int flags) throws Exception {
        if ((flags & FORGET) == 0) {
            thing.close();
        }
    }

    /** Collects garbage and delivers releases. Returns what is outstanding, what waits, and the size of the heap. */
    public static long[] settle() throws InterruptedException {
        System.gc();
        require(ReleaseQueue.flush(Duration.ofMinutes(2)), "the release queue stands still");
        Runtime heap = Runtime.getRuntime();
        return new long[] {
            DevExchange.outstanding() + ReleaseQueue.pending(), heap.totalMemory() - heap.freeMemory()
        };
    }
}
