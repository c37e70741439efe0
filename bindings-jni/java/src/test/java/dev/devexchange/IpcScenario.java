package dev.devexchange;

import static dev.devexchange.DeviceScenario.CUDA;
import static dev.devexchange.DeviceScenario.SIX;
import static dev.devexchange.DeviceScenario.begin;
import static dev.devexchange.DeviceScenario.check;
import static dev.devexchange.DeviceScenario.finish;
import static dev.devexchange.DeviceScenario.refused;
import static dev.devexchange.DeviceScenario.same;
import static dev.devexchange.DeviceScenario.settle;
import static dev.devexchange.DeviceScenario.work;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;

/** Programs that share with another process; see {@link IpcTest}. */
final class IpcScenario {
    private static final ByteBuffer NONE = null;

    private IpcScenario() {}

    public static void main(String[] arguments) throws Exception {
        switch (arguments[0]) {
            case "importer" -> importer(arguments[1]);
            case "exporter" -> exporter(arguments[1]);
            case "devices" -> devices();
            case "device importer" -> deviceImporter(arguments[1]);
            case "killed" -> killed();
            default -> throw new AssertionError(arguments[0]);
        }
        System.out.println("main is done");
    }

    /** The requests of the other process, line by line. */
    private interface Command {
        String run(String line) throws Exception;
    }

    private static void obey(Command command) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(command.run(line));
        }
    }

    static Batch batch(Runnable release) {
        Field[] fields = {Field.of("n", Format.INT32).nullable(), Field.of("s", Format.UTF8)};
        List<Node> nodes = List.of(
                Node.of(2, NONE),
                Node.of(2, Direct.bits("10"), Direct.ints(1, 2)),
                Node.of(2, NONE, Direct.ints(0, 1, 2), Direct.text("ab")));
        try (Schema schema = Schema.batch(fields)) {
            return Batch.create(schema, Device.CPU, nodes, release);
        }
    }

    static void holds(Batch batch) {
        same(2L, batch.length());
        same(1, batch.column("n").getInt(0));
        check(batch.column("n").isNull(1));
        same("a", batch.column("s").getString(0));
        same("b", batch.column("s").getString(1));
    }

    // ---- host memory ----

    private static void importer(String address) throws Exception {
        IpcClient client = IpcClient.connect(address);
        Tensor shared = client.importTensor("shared");
        Tensor copied = client.importTensor("copied");
        Batch batch = client.importBatch("batch");
        System.out.println("has all");
        obey(line -> switch (line) {
            case "read" -> {
                same(2L, shared.getLong(1));
                same(4L, shared.getLong(3));
                same(5L, copied.getLong(0));
                same(8L, copied.getLong(3));
                holds(batch);
                yield "read";
            }
            case "see 33" -> {
                same(33L, shared.getLong(2));
                yield "seen";
            }
            case "write" -> {
                shared.byteBuffer().putInt(0, 99);
                yield "written";
            }
            case "again" -> {
                refused(Status.INVALID_ARGUMENT, () -> client.importTensor("shared"), "refused", "shared");
                yield "refused";
            }
            case "release" -> {
                client.close();
                shared.close();
                copied.close();
                batch.close();
                yield "released";
            }
            default -> throw new AssertionError(line);
        });
        check(ReleaseQueue.flush(Duration.ofMinutes(2)));
        same(0L, DevExchange.outstanding());
    }

    private static void exporter(String address) throws Exception {
        try (IpcServer server = IpcServer.bind(address);
                Tensor tensor = Tensor.allocateShared(DType.INT32, new long[] {4});
                Batch batch = batch(null)) {
            tensor.byteBuffer().asIntBuffer().put(new int[] {1, 2, 3, 4});
            server.offer("shared", tensor, Copy.NEVER);
            server.offer("batch", batch, Copy.IF_NEEDED);
            System.out.println("offers");
            obey(line -> line);
        }
    }

    // ---- memory of devices ----

    private static String address() {
        return "@devexchange-java-cuda-" + ProcessHandle.current().pid();
    }

    /** This program again, as the other side, with its own driver. */
    private static Jvm.Peer peer() throws IOException {
        String library = "-D" + DeviceScenario.PROPERTY + "=" + System.getProperty(DeviceScenario.PROPERTY);
        return Jvm.start(List.of("-Xcheck:jni", library), IpcScenario.class, "device importer", address());
    }

    private static void soon(IpcServer server, long leases) throws InterruptedException {
        long end = System.nanoTime() + 120_000_000_000L;
        while (server.leases() != leases) {
            check(System.nanoTime() < end);
            Thread.sleep(1);
        }
    }

    /** Memory from the driver and from a pool, still being filled, and a batch. */
    private static IpcServer offer(DeviceStream stream, MemoryManager pool) {
        IpcServer server = IpcServer.bind(address());
        try (Tensor plain = Tensor.allocate(CUDA, DType.INT32, SIX, null);
                Tensor pooled = Tensor.allocate(pool, CUDA, DType.INT32, SIX, stream);
                Tensor source = DeviceScenario.filled(stream);
                Batch host = batch(null)) {
            same(0, work(plain.address(), source.address(), 24, stream.value()));
            same(0, work(pooled.address(), source.address(), 24, stream.value()));
            try (Tensor view = Tensor.create(
                    plain.address(), CUDA, DType.INT32, SIX, null, 0, plain.share()::close)) {
                view.producedOn(stream);
                pooled.producedOn(stream);
                same(Plan.Kind.VIEW, IpcServer.plan(view).kind());
                same(Plan.Kind.VIEW, IpcServer.plan(pooled).kind());
                // Memory of the device's default pool, which was not made to be shared.
                check(IpcServer.plan(source).kind() != Plan.Kind.VIEW);
                server.offer("plain", view, Copy.NEVER);
                server.offer("pooled", pooled, Copy.NEVER);
            }
            server.offer("batch", host, Copy.IF_NEEDED);
        }
        return server;
    }

    private static void devices() throws Exception {
        begin();
        try (DeviceStream stream = DeviceStream.create(CUDA);
                MemoryManager pool = MemoryManager.shareablePool(MemoryManager.NO_LIMIT, MemoryManager.NO_LIMIT)) {
            try (IpcServer server = offer(stream, pool);
                    Jvm.Peer peer = peer()) {
                peer.expect("has all");
                for (String name : List.of("plain", "pooled", "batch")) {
                    check(server.withdraw(name));
                }
                same(3L, server.leases());
                peer.tell("read", "read");
                peer.tell("release", "released");
                soon(server, 0);
                peer.end();
            }
            settle();
            stream.synchronize();
        }
        finish();
    }

    private static void killed() throws Exception {
        begin();
        try (DeviceStream stream = DeviceStream.create(CUDA);
                MemoryManager pool = MemoryManager.shareablePool(MemoryManager.NO_LIMIT, MemoryManager.NO_LIMIT)) {
            try (IpcServer server = offer(stream, pool);
                    Jvm.Peer peer = peer()) {
                peer.expect("has all");
                for (String name : List.of("plain", "pooled", "batch")) {
                    check(server.withdraw(name));
                }
                peer.tell("read", "read");
                peer.kill();
                soon(server, 0);
            }
            settle();
            stream.synchronize();
        }
        finish();
    }

    private static void deviceImporter(String address) throws Exception {
        begin();
        try (DeviceStream stream = DeviceStream.create(CUDA)) {
            IpcClient client = IpcClient.connect(address);
            Tensor plain = client.importTensor("plain");
            Tensor pooled = client.importTensor("pooled");
            Batch batch = client.importBatch("batch");
            same(CUDA, plain.device());
            System.out.println("has all");
            obey(line -> {
                if (line.equals("read")) {
                    for (Tensor tensor : List.of(plain, pooled)) {
                        DeviceScenario.holds(tensor, stream);
                        tensor.usedOn(stream);
                    }
                    holds(batch);
                    return "read";
                }
                client.close();
                plain.close();
                pooled.close();
                batch.close();
                settle();
                return "released";
            });
            stream.synchronize();
        }
        finish();
    }
}
