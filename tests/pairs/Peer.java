import dev.devexchange.Batch;
import dev.devexchange.Column;
import dev.devexchange.Copy;
import dev.devexchange.DType;
import dev.devexchange.DevExchange;
import dev.devexchange.Device;
import dev.devexchange.DeviceStream;
import dev.devexchange.DeviceType;
import dev.devexchange.Field;
import dev.devexchange.Flags;
import dev.devexchange.Format;
import dev.devexchange.IpcClient;
import dev.devexchange.IpcServer;
import dev.devexchange.Node;
import dev.devexchange.ReleaseQueue;
import dev.devexchange.Schema;
import dev.devexchange.Tensor;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** The Java program of pairs.py. */
public final class Peer {
    private static final ByteBuffer NONE = null;
    private static final Device CUDA = new Device(DeviceType.CUDA, 0);
    private static final long[] TWO = {2};
    private static final Duration LONG = Duration.ofMinutes(2);

    private record Imported(Map<String, Tensor> tensors, Map<String, Batch> batches) {}

    private final Map<String, Imported> held = new HashMap<>();
    private final DeviceStream stream;

    private Peer(boolean cuda) {
        stream = cuda ? DeviceStream.create(CUDA) : null;
    }

    private static ByteBuffer room(int bytes) {
        return ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder());
    }

    private static ByteBuffer bytes(int... values) {
        ByteBuffer buffer = room(values.length);
        for (int value : values) {
            buffer.put((byte) value);
        }
        return buffer.flip();
    }

    private static ByteBuffer ints(int... values) {
        ByteBuffer buffer = room(values.length * Integer.BYTES);
        buffer.asIntBuffer().put(values);
        return buffer;
    }

    private static ByteBuffer longs(long... values) {
        ByteBuffer buffer = room(values.length * Long.BYTES);
        buffer.asLongBuffer().put(values);
        return buffer;
    }

    private static ByteBuffer doubles(double... values) {
        ByteBuffer buffer = room(values.length * Double.BYTES);
        buffer.asDoubleBuffer().put(values);
        return buffer;
    }

    private static ByteBuffer text(String text) {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        return room(bytes.length).put(bytes).flip();
    }

    private static Batch batch(int rows) {
        Field[] columns = {
            Field.of("n", Format.INT64).nullable(),
            Field.of("s", Format.UTF8).nullable(),
            Field.of("l", Format.LIST).nullable().withChildren(Field.of("item", Format.INT64)),
            Field.of("d", Format.INT8).withDictionary(Field.of("", Format.UTF8)),
            Field.of("st", Format.STRUCT).withChildren(Field.of("a", Format.INT64), Field.of("b", Format.FLOAT64)),
            Field.of("m", Format.BOOL).nullable()
        };
        List<Node> nodes = List.of(
                Node.of(rows, NONE),
                Node.of(rows, bytes(0b1011), longs(9, 1, 0, 3)).withOffset(1),
                Node.of(rows, bytes(0b101), ints(0, 1, 1, 8), text("aZürich")),
                Node.of(rows, bytes(0b011), ints(0, 2, 2, 2)),
                Node.of(2, NONE, longs(1, 2)),
                Node.of(rows, NONE, bytes(0, 1, 0)),
                Node.of(2, NONE, ints(0, 1, 2), text("xy")),
                Node.of(rows, NONE),
                Node.of(rows, NONE, longs(1, 2, 3)),
                Node.of(rows, NONE, doubles(0.5, 1.5, 2.5)),
                Node.of(rows, bytes(0b101), bytes(0b001)));
        try (Schema schema = Schema.batch(columns)) {
            return Batch.create(schema, Device.CPU, nodes, null);
        }
    }

    private static String number(double value) {
        return value == Math.rint(value) ? Long.toString((long) value) : Double.toString(value);
    }

    private String show(String name, Tensor tensor) {
        if (!tensor.device().equals(Device.CPU)) {
            ByteBuffer values = room(2 * Double.BYTES);
            tensor.read(values, stream);
            try (Tensor copy = Tensor.create(values, tensor.dtype(), tensor.shape(), null)) {
                return show(name, copy);
            }
        }
        boolean whole = tensor.dtype().equals(DType.INT32);
        long[] shape = tensor.shape();
        String extents = Arrays.stream(shape).mapToObj(Long::toString).collect(Collectors.joining("x"));
        List<String> elements = new ArrayList<>();
        for (int i = 0; i < tensor.elements(); i++) {
            long[] at = shape.length == 2 ? new long[] {i / shape[1], i % shape[1]} : new long[] {i};
            double here = whole ? tensor.getLong(at) : tensor.getDouble(at);
            elements.add(number(here));
        }
        String readOnly = Flags.has(tensor.flags(), Flags.READ_ONLY) ? " read-only" : "";
        return name + (whole ? " 032 " : " 264 ") + extents + readOnly + " [" + String.join(" ", elements) + "]; ";
    }

    private static String show(String name, Batch batch) {
        StringBuilder shown = new StringBuilder(name + " " + batch.length());
        for (Column column : batch.columns()) {
            List<String> rows = new ArrayList<>();
            for (long row = 0; row < batch.length(); row++) {
                rows.add(column.asText(row));
            }
            shown.append(" ").append(column.field().name()).append(":").append(String.join(",", rows));
        }
        return shown + "; ";
    }

    private String importAll(String address) {
        Imported imported = new Imported(new HashMap<>(), new HashMap<>());
        held.put(address, imported);
        List<String> names = new ArrayList<>(List.of("shared", "view", "copied", "none"));
        if (stream != null) {
            names.add("device");
        }
        StringBuilder shown = new StringBuilder();
        try (IpcClient client = IpcClient.connect(address)) {
            for (String name : names) {
                imported.tensors.put(name, client.importTensor(name));
                shown.append(show(name, imported.tensors.get(name)));
            }
            for (String name : List.of("rows", "no rows")) {
                imported.batches.put(name, client.importBatch(name));
                shown.append(show(name, imported.batches.get(name)));
            }
        }
        return shown.toString();
    }

    private String write(String address) {
        ByteBuffer memory = held.get(address).tensors.get("shared").byteBuffer();
        memory.putInt(0, memory.getInt(0) + 1);
        return "written";
    }

    private String release() {
        for (Imported imported : held.values()) {
            if (stream != null) {
                imported.tensors.get("device").usedOn(stream);
            }
            imported.tensors.values().forEach(Tensor::close);
            imported.batches.values().forEach(Batch::close);
        }
        held.clear();
        return "released";
    }

    private static void offer(IpcServer server, String name, Tensor tensor, Copy copy) {
        try (tensor) {
            server.offer(name, tensor, copy);
        }
    }

    private void run(String address) throws Exception {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        try (IpcServer server = IpcServer.bind(address);
                Tensor shared = Tensor.allocateShared(DType.INT32, new long[] {2, 3})) {
            ByteBuffer memory = shared.byteBuffer();
            memory.asIntBuffer().put(new int[] {1, 2, 3, 4, 5, 6});
            server.offer("shared", shared, Copy.NEVER);
            long second = shared.address() + Integer.BYTES;
            Tensor view = Tensor.create(second, Device.CPU, DType.INT32, TWO, new long[] {2}, Flags.READ_ONLY, null);
            offer(server, "view", view, Copy.NEVER);
            offer(server, "copied", Tensor.create(doubles(1.5, 2.5), DType.FLOAT64, TWO, null), Copy.IF_NEEDED);
            offer(server, "none", Tensor.allocateShared(DType.INT32, new long[] {0, 3}), Copy.NEVER);
            try (Batch rows = batch(3);
                    Batch none = batch(0)) {
                server.offer("rows", rows, Copy.IF_NEEDED);
                server.offer("no rows", none, Copy.IF_NEEDED);
            }
            if (stream != null) {
                Tensor made = Tensor.allocate(CUDA, DType.FLOAT64, TWO, stream);
                made.write(doubles(1.5, 2.5), stream);
                made.producedOn(stream);
                offer(server, "device", made, Copy.IF_NEEDED);
            }
            out.println("ready");
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] words = line.split(" ");
                ReleaseQueue.flush(LONG);
                out.println(switch (words[0]) {
                    case "import" -> importAll(words[1]);
                    case "write" -> write(words[1]);
                    case "look" -> memory.getInt(0) + " " + server.leases() + " " + DevExchange.outstanding();
                    case "release" -> release();
                    default -> throw new IllegalArgumentException(line);
                });
            }
        }
        long end = System.nanoTime() + LONG.toNanos();
        while (DevExchange.outstanding() != 0 && System.nanoTime() < end) {
            ReleaseQueue.flush(LONG);
            Thread.sleep(1);
        }
        out.println("outstanding " + DevExchange.outstanding());
    }

    public static void main(String[] arguments) throws Exception {
        new Peer(arguments.length > 1).run(arguments[0]);
    }
}
