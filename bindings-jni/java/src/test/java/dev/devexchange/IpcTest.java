package dev.devexchange;

import static dev.devexchange.Check.refused;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;

/** Sharing between processes: this one and a JVM beside it ({@link IpcScenario}), and two with the simulated driver. */
@ExtendWith(Check.class)
class IpcTest {
    private static final AtomicInteger ADDRESSES = new AtomicInteger();
    private static final long[] FOUR = {4};

    private final String address =
            "@devexchange-java-" + ProcessHandle.current().pid() + "-" + ADDRESSES.incrementAndGet();

    private Jvm.Peer start(String part) throws IOException {
        return Jvm.start(List.of("-Xcheck:jni"), IpcScenario.class, part, address);
    }

    private static Tensor shared() {
        Tensor tensor = Tensor.allocateShared(DType.INT32, FOUR);
        tensor.byteBuffer().asIntBuffer().put(new int[] {1, 2, 3, 4});
        return tensor;
    }

    /** A tensor over the test's own memory, which importers cannot see. */
    private static Tensor own(Runnable release) {
        return Tensor.create(Direct.ints(5, 6, 7, 8), DType.INT32, FOUR, release);
    }

    // ---- two processes ----

    @Test
    void bothWaysAndTheSameMemory() throws IOException, InterruptedException {
        Release release = new Release();
        Release rows = new Release();
        try (IpcServer server = IpcServer.bind(address)) {
            Tensor tensor = shared();
            ByteBuffer memory = tensor.byteBuffer();
            server.offer("shared", tensor, Copy.NEVER);
            try (Tensor copied = own(release);
                    Batch batch = IpcScenario.batch(rows)) {
                server.offer("copied", copied, Copy.IF_NEEDED);
                server.offer("batch", batch, Copy.IF_NEEDED);
            }
            release.assertOnce();
            rows.assertOnce();
            try (Jvm.Peer peer = start("importer")) {
                peer.expect("has all");
                assertEquals(3, server.leases());
                peer.tell("read", "read");
                memory.putInt(8, 33);
                peer.tell("see 33", "seen");
                peer.tell("write", "written");
                assertEquals(99, memory.getInt(0));
                assertTrue(server.withdraw("shared"));
                assertFalse(server.withdraw("shared"));
                peer.tell("again", "refused");
                peer.tell("read", "read");
                peer.tell("release", "released");
                Check.eventually(() -> server.leases() == 0);
                peer.end();
            }
            tensor.close();
            assertEquals("IpcServer (0 leases)", server.toString());
        }
    }

    @Test
    void whatAKilledImporterHoldsIsReleased() throws IOException, InterruptedException {
        try (IpcServer server = IpcServer.bind(address)) {
            try (Tensor tensor = shared();
                    Batch batch = IpcScenario.batch(null)) {
                server.offer("shared", tensor, Copy.NEVER);
                server.offer("copied", tensor, Copy.ALWAYS);
                server.offer("batch", batch, Copy.IF_NEEDED);
            }
            Jvm.Peer peer = start("importer");
            peer.expect("has all");
            for (String name : List.of("shared", "copied", "batch")) {
                assertTrue(server.withdraw(name));
            }
            assertEquals(3, server.leases());
            assertNotEquals(0, Check.outstanding());
            peer.kill();
            Check.eventually(() -> server.leases() == 0 && Check.outstanding() == 0);
        }
    }

    @Test
    void whatAKilledExporterGaveStaysValid() throws IOException, InterruptedException {
        try (Jvm.Peer peer = start("exporter")) {
            peer.expect("offers");
            try (IpcClient client = IpcClient.connect(address, Duration.ofMinutes(2));
                    Tensor tensor = client.importTensor("shared");
                    Batch batch = client.importBatch("batch")) {
                peer.kill();
                assertEquals(4, tensor.getLong(3));
                tensor.byteBuffer().putInt(0, 7);
                assertEquals("b", batch.column("s").getString(1));
                refused(Status.CLOSED, () -> client.importTensor("shared"), "the exporter is gone");
            }
            refused(Status.SYSTEM, () -> IpcClient.connect(address, Duration.ofMillis(50)), "connect");
        }
    }

    @Test
    void anExporterHasNoMoreTimeThanItIsGiven() throws IOException, InterruptedException {
        try (Jvm.Peer peer = start("exporter")) {
            peer.expect("offers");
            peer.stop();
            refused(
                    Status.NOT_READY,
                    () -> IpcClient.connect(address, Duration.ofMillis(50)),
                    "did not answer within 50ms");
        }
    }

    // ---- within one ----

    @Test
    void importsOutliveEverything() throws InterruptedException {
        IpcServer server = IpcServer.bind(address);
        Tensor tensor = shared();
        server.offer("x", tensor, Copy.NEVER);
        IpcClient client = IpcClient.connect(address);
        assertEquals("IpcClient (open)", client.toString());
        Tensor first = client.importTensor("x");
        Tensor second = client.importTensor("x");
        assertEquals(1, server.leases());
        client.close();
        tensor.close();
        assertArrayEquals(FOUR, first.shape());
        assertEquals(DType.INT32, first.dtype());
        assertEquals(Device.CPU, first.device());
        first.byteBuffer().putInt(4, -2);
        assertEquals(-2, second.getLong(1));
        first.close();
        assertEquals(1, server.leases());
        server.close();
        assertEquals(-2, second.getLong(1));
        second.close();
        assertEquals("IpcClient (closed)", client.toString());
        assertEquals("IpcServer (closed)", server.toString());
    }

    @Test
    void readOnlyStaysReadOnly() throws InterruptedException {
        try (IpcServer server = IpcServer.bind(address);
                Tensor tensor = shared();
                Batch batch = IpcScenario.batch(null);
                Tensor readOnly = Tensor.create(
                        tensor.address(), Device.CPU, DType.INT32, FOUR, null, Flags.READ_ONLY, null)) {
            server.offer("r", readOnly, Copy.IF_NEEDED);
            server.offer("b", batch, Copy.IF_NEEDED);
            try (IpcClient client = IpcClient.connect(address);
                    Tensor imported = client.importTensor("r");
                    Batch rows = client.importBatch("b")) {
                assertTrue(Flags.has(imported.flags(), Flags.READ_ONLY));
                assertTrue(imported.byteBuffer().isReadOnly());
                assertEquals(4, imported.getLong(3));
                IpcScenario.holds(rows);
            }
            Check.eventually(() -> server.leases() == 0);
        }
    }

    @Test
    void aPlanSaysHow() {
        try (Tensor shared = shared();
                Tensor own = own(null);
                Batch batch = IpcScenario.batch(null)) {
            assertEquals(Plan.Kind.VIEW, IpcServer.plan(shared).kind());
            Plan plan = IpcServer.plan(own);
            assertEquals(Plan.Kind.COPY, plan.kind());
            assertEquals(16, plan.copyBytes());
            assertFalse(plan.reason().isEmpty());
            assertEquals(Plan.Kind.COPY, IpcServer.plan(batch).kind());
        }
        Tensor closed = own(null);
        closed.close();
        refused(Status.CLOSED, () -> IpcServer.plan(closed), "IpcServer.plan", "the tensor is closed");
        Batch gone = IpcScenario.batch(null);
        gone.close();
        refused(Status.CLOSED, () -> IpcServer.plan(gone), "IpcServer.plan", "the batch is closed");
    }

    @Test
    void sharedMemoryIsMemoryLikeAnyOther() {
        try (Tensor zero = Tensor.allocateShared(DType.FLOAT64, new long[] {2, 3});
                Tensor scalar = Tensor.allocateShared(DType.INT8, new long[0]);
                Tensor empty = Tensor.allocateShared(DType.INT8, new long[] {0})) {
            assertEquals(0, zero.getDouble(1, 2));
            zero.byteBuffer().putDouble(40, 2.5);
            try (Tensor imported = Tensor.importDlpack(zero.exportShare())) {
                assertEquals(2.5, imported.getDouble(1, 2));
            }
            assertEquals(1, scalar.elements());
            assertEquals(0, empty.elements());
        }
        refused(Status.INVALID_SHAPE, () -> Tensor.allocateShared(DType.INT8, new long[] {-3}), "-3");
        refused(Status.INVALID_SHAPE, () -> Tensor.allocateShared(DType.INT64, new long[] {Long.MAX_VALUE}));
        refused(Status.INVALID_DTYPE, () -> Tensor.allocateShared(new DType(99, 8, 1), FOUR), "99");
    }

    @Test
    void everyArgumentThatIsWrongIsNamed() {
        refused(Status.INVALID_ARGUMENT, () -> IpcServer.bind(""), "address is \"\"");
        refused(Status.INVALID_ARGUMENT, () -> IpcServer.bind("@"), "address is \"@\"");
        refused(Status.INVALID_ARGUMENT, () -> IpcServer.bind("/" + "x".repeat(200)), "107 bytes");
        refused(Status.SYSTEM, () -> IpcServer.bind("/there/is/no/such/directory"), "bind", "/there/is/no");
        refused(Status.INVALID_ARGUMENT, () -> IpcClient.connect(""), "address is \"\"");
        refused(Status.SYSTEM, () -> IpcClient.connect(address), "connect");
        refused(
                Status.INVALID_ARGUMENT, () -> IpcClient.connect(address, Duration.ofMillis(-1)), "timeout is PT-0.001S");
        assertThrows(NullPointerException.class, () -> IpcClient.connect(address, null));
        assertThrows(NullPointerException.class, () -> IpcClient.connect(null));
        assertThrows(NullPointerException.class, () -> IpcServer.bind(null));
        refused(Status.INVALID_TEXT, () -> IpcServer.bind("@\ud800"), "address", "not valid Unicode");
        refused(Status.INVALID_TEXT, () -> IpcClient.connect("@\ud800"), "address", "not valid Unicode");
        try (IpcServer server = IpcServer.bind(address);
                Tensor own = own(null);
                Batch batch = IpcScenario.batch(null)) {
            refused(Status.SYSTEM, () -> IpcServer.bind(address), "bind", address);
            refused(Status.COPY_REQUIRED, () -> server.offer("x", own, Copy.NEVER));
            refused(Status.COPY_REQUIRED, () -> server.offer("x", batch, Copy.NEVER));
            refused(Status.INVALID_ARGUMENT, () -> server.offer("", own, Copy.ALWAYS), "name has 0 bytes");
            String longName = "x".repeat(256);
            refused(Status.INVALID_ARGUMENT, () -> server.offer(longName, batch, Copy.ALWAYS), "name has 256 bytes");
            assertThrows(NullPointerException.class, () -> server.offer("x", own, null));
            NullPointerException unnamed =
                    assertThrows(NullPointerException.class, () -> server.offer(null, own, Copy.ALWAYS));
            assertEquals("name", unnamed.getMessage());
            assertThrows(NullPointerException.class, () -> server.offer(null, batch, Copy.ALWAYS));
            assertThrows(NullPointerException.class, () -> server.withdraw(null));
            refused(Status.INVALID_TEXT, () -> server.offer("\ud800", own, Copy.ALWAYS), "name", "Unicode");
            refused(Status.INVALID_TEXT, () -> server.offer("\ud800", batch, Copy.ALWAYS), "name", "Unicode");
            refused(Status.INVALID_TEXT, () -> server.withdraw("\ud800"), "name", "Unicode");
            Tensor closed = own(null);
            closed.close();
            refused(Status.CLOSED, () -> server.offer("x", closed, Copy.ALWAYS), "IpcServer.offer", "tensor");
            Batch gone = IpcScenario.batch(null);
            gone.close();
            refused(Status.CLOSED, () -> server.offer("x", gone, Copy.ALWAYS), "IpcServer.offer", "batch");
            assertFalse(server.withdraw("never there"));
            server.offer("tensor", own, Copy.ALWAYS);
            try (IpcClient client = IpcClient.connect(address, Duration.ofSeconds(Long.MAX_VALUE))) {
                refused(Status.INVALID_ARGUMENT, () -> client.importTensor("other"), "refused", "other");
                refused(Status.MISMATCH, () -> client.importBatch("tensor"));
                refused(Status.INVALID_ARGUMENT, () -> client.importTensor(""), "name has 0 bytes");
                refused(Status.INVALID_TEXT, () -> client.importTensor("\ud800"), "name", "Unicode");
                refused(Status.INVALID_TEXT, () -> client.importBatch("\ud800"), "name", "Unicode");
                client.importTensor("tensor").close();
            }
        }
    }

    @Test
    void aPathIsAnAddressToo(@TempDir Path elsewhere) {
        Path socket = elsewhere.resolve("socket");
        try (IpcServer server = IpcServer.bind(socket.toString());
                Tensor tensor = shared()) {
            server.offer("n\u00e4me", tensor, Copy.NEVER);
            assertTrue(Files.exists(socket));
            try (IpcClient client = IpcClient.connect(socket.toString());
                    Tensor imported = client.importTensor("n\u00e4me")) {
                assertEquals(2, imported.getLong(1));
            }
        }
        assertFalse(Files.exists(socket));
    }

    /** An offer takes the place of an earlier one of the same name. */
    @Test
    void offersAreReplaced() {
        try (IpcServer server = IpcServer.bind(address);
                Tensor first = shared();
                Tensor second = own(null)) {
            server.offer("x", first, Copy.NEVER);
            server.offer("x", second, Copy.ALWAYS);
            try (IpcClient client = IpcClient.connect(address);
                    Tensor imported = client.importTensor("x")) {
                assertEquals(8, imported.getLong(3));
            }
        }
    }

    @Test
    void tenThousandImportsEndWhereTheyBegan() throws IOException, InterruptedException {
        try (IpcServer server = IpcServer.bind(address);
                Tensor tensor = shared()) {
            server.offer("x", tensor, Copy.NEVER);
            long files = files();
            Ledger before = DevExchange.ledger();
            Threads threads = Threads.start(4, () -> {
                try (IpcClient client = IpcClient.connect(address)) {
                    for (int round = 0; round < 2500; round++) {
                        try (Tensor imported = client.importTensor("x")) {
                            assertEquals(4, imported.getLong(3));
                        }
                    }
                }
            });
            threads.join();
            Check.eventually(() -> server.leases() == 0);
            assertEquals(before.tensorImports().live(), DevExchange.ledger().tensorImports().live());
            // The JVM may have opened some files for itself.
            assertTrue(files() < files + 50, "files stay open: " + files + " before, " + files() + " now");
        }
    }

    private static long files() throws IOException {
        try (Stream<Path> files = Files.list(Path.of("/proc/self/fd"))) {
            return files.count();
        }
    }

    /** The garbage collector closes what nobody closed. */
    @Test
    void whatNobodyClosesIsReleased() throws InterruptedException {
        forget();
        Check.collected(() -> Check.outstanding() <= 0);
        Check.collected(() -> {
            try (IpcServer again = IpcServer.bind(address)) {
                return !again.isClosed();
            } catch (DevExchangeException e) {
                return false;
            }
        });
    }

    private void forget() {
        IpcServer server = IpcServer.bind(address);
        server.offer("x", shared(), Copy.NEVER);
        IpcClient.connect(address).importTensor("x");
    }

    // ---- memory of devices ----

    @Test
    void memoryOfDevicesGoesToAnotherProcess() throws IOException, InterruptedException {
        for (String mode : List.of("lazy", "threads")) {
            Simulated.endsWell(IpcScenario.class, "devices", mode, 1);
        }
    }

    @Test
    void aKilledImporterGivesDeviceMemoryBack() throws IOException, InterruptedException {
        Simulated.endsWell(IpcScenario.class, "killed", "lazy", 1);
    }
}
