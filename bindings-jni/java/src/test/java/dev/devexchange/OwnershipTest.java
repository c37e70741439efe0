package dev.devexchange;

import static dev.devexchange.Check.refused;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** A release runs exactly once, when the last user is gone, whoever that is and in whatever order the users go. */
@ExtendWith(Check.class)
class OwnershipTest {
    private static Tensor tensor(Runnable release) {
        return Tensor.create(Direct.doubles(1, 2, 3), DType.FLOAT64, new long[] {3}, release);
    }

    private static Batch batch(Runnable release) {
        try (Schema schema = Schema.batch(Field.of("x", Format.FLOAT64))) {
            return Batch.create(
                    schema,
                    Device.CPU,
                    List.of(Node.of(3, (ByteBuffer) null), Node.of(3, null, Direct.doubles(1, 2, 3))),
                    release);
        }
    }

    @Test
    void closingReleasesOnTheThreadOfTheQueue() throws InterruptedException {
        Release release = new Release();
        Tensor tensor = tensor(release);
        release.assertNotYet();
        tensor.close();
        release.assertOnce();
        assertEquals("devexchange-releases", release.thread().getName());
        assertTrue(release.thread().isDaemon());
        tensor.close();
        release.assertOnce();
    }

    @Test
    void anExportOutlivesItsTensor() throws InterruptedException {
        Release release = new Release();
        Tensor tensor = tensor(release);
        long exported = tensor.exportShare();
        tensor.close();
        release.assertNotYet();
        Tensor imported = Tensor.importDlpack(exported);
        release.assertNotYet();
        assertEquals(2, imported.getDouble(1));
        imported.close();
        release.assertOnce();
    }

    @Test
    void anImportKeepsWhatItWasExportedFrom() throws InterruptedException {
        Release release = new Release();
        Tensor tensor = tensor(release);
        Tensor imported = Tensor.importDlpack(tensor.exportMove());
        assertTrue(tensor.isClosed());
        // Again and again through the ABI: each tensor holds the one before it.
        for (int i = 0; i < 10; i++) {
            imported = Tensor.importDlpack(imported.exportMove());
        }
        release.assertNotYet();
        // The memory, and one export and one import for each round.
        assertEquals(1 + 11 + 11, Check.outstanding());
        imported.close();
        release.assertOnce();
    }

    @Test
    void anExportThatNobodyTakesIsGivenBack() throws InterruptedException {
        Release first = new Release();
        Dlpack.release(tensor(first).exportMove());
        first.assertOnce();
        Release second = new Release();
        Dlpack.releaseLegacy(tensor(second).exportMoveLegacy(DlpackRequest.DEFAULT));
        second.assertOnce();
    }

    @Test
    void sharesAreCountedInEveryOrder() throws InterruptedException {
        Random random = new Random(7);
        for (int round = 0; round < 50; round++) {
            Release release = new Release();
            Tensor tensor = tensor(release);
            List<AutoCloseable> users = new ArrayList<>(List.of(tensor, tensor.share(), tensor.share()));
            users.add(Tensor.importDlpack(tensor.exportShare()));
            users.add(Tensor.importDlpackLegacy(tensor.exportShareLegacy(DlpackRequest.DEFAULT)));
            users.add(tensor.toColumn("x", Copy.NEVER));
            Collections.shuffle(users, random);
            closeAllButTheLast(users);
            release.assertNotYet();
            close(users.get(users.size() - 1));
            release.assertOnce();
        }
    }

    @Test
    void batchesAreCountedInEveryOrder() throws InterruptedException {
        Random random = new Random(11);
        for (int round = 0; round < 50; round++) {
            Release release = new Release();
            Batch batch = batch(release);
            CStruct array = CStruct.arrowArray();
            CStruct deviceArray = CStruct.arrowDeviceArray();
            batch.exportShare(array.address());
            batch.exportShareDevice(deviceArray.address());
            List<AutoCloseable> users = new ArrayList<>(List.of(batch, batch.share(), array));
            users.add(batch.column("x").toTensor(Copy.NEVER));
            try (Schema schema = batch.schema()) {
                users.add(Batch.importArrowDevice(deviceArray.address(), schema));
            }
            assertTrue(deviceArray.isReleased());
            deviceArray.close();
            Collections.shuffle(users, random);
            closeAllButTheLast(users);
            release.assertNotYet();
            close(users.get(users.size() - 1));
            release.assertOnce();
        }
    }

    private static void closeAllButTheLast(List<AutoCloseable> users) {
        users.subList(0, users.size() - 1).forEach(OwnershipTest::close);
    }

    private static void close(AutoCloseable user) {
        try {
            user.close();
        } catch (Exception e) {
            throw new AssertionError(e);
        }
    }

    @Test
    void aBatchIsMovedAsWell() throws InterruptedException {
        Release release = new Release();
        Batch batch = batch(release);
        try (CStruct array = CStruct.arrowArray();
                CStruct schema = CStruct.arrowSchema()) {
            try (Schema ours = batch.schema()) {
                ours.exportArrow(schema.address());
            }
            batch.exportMove(array.address());
            assertTrue(batch.isClosed());
            Batch imported = Batch.importArrow(array.address(), schema.address());
            assertTrue(array.isReleased());
            assertTrue(schema.isReleased());
            release.assertNotYet();
            assertEquals(3, imported.column(0).getDouble(2));
            try (CStruct deviceArray = CStruct.arrowDeviceArray()) {
                imported.exportMoveDevice(deviceArray.address());
                assertTrue(imported.isClosed());
                release.assertNotYet();
            }
        }
        release.assertOnce();
    }

    @Test
    void childrenMovedOutOfAStructOutliveIt() throws InterruptedException {
        Release release = new Release();
        Batch batch = batch(release);
        try (Schema schema = Schema.of(Field.of("x", Format.FLOAT64));
                CStruct array = CStruct.arrowArray();
                CStruct moved = CStruct.arrowArray()) {
            batch.exportShare(array.address());
            batch.close();
            long children = array.memory().getLong(Records.ARROW_ARRAY.at("children"));
            long child = HostMemory.view(children, 8).getLong(0);
            ByteBuffer source = HostMemory.view(child, Records.ARROW_ARRAY.size());
            moved.memory().put(0, source, 0, source.capacity());
            source.putLong(Records.ARROW_ARRAY.at("release"), 0);
            array.release();
            assertTrue(array.isReleased());
            release.assertNotYet();
            try (Batch column = Batch.importArrow(moved.address(), schema)) {
                assertEquals(2, column.root().getDouble(1));
                release.assertNotYet();
            }
            release.assertOnce();
        }
    }

    @Test
    void aRefusedCallLeavesTheReleaseWithItsCaller() throws InterruptedException {
        Release release = new Release();
        ByteBuffer memory = Direct.doubles(1);
        for (int i = 0; i < 3; i++) {
            refused(Status.INVALID_SHAPE, () -> Tensor.create(memory, DType.FLOAT64, new long[] {-1}, release));
            refused(Status.INVALID_SHAPE, () -> Tensor.create(memory, DType.FLOAT64, new long[] {9}, release));
            refused(
                    Status.DEVICE,
                    () -> Tensor.create(
                            64, new Device(DeviceType.ROCM, 0), DType.INT8, new long[] {1}, null, 0, release));
            Schema schema = Schema.batch(Field.of("x", Format.FLOAT64));
            List<Node> tooFew = List.of(Node.of(3, (ByteBuffer) null));
            refused(Status.MISMATCH, () -> Batch.create(schema, Device.CPU, tooFew, release), "1 nodes", "2 fields");
            schema.close();
            refused(Status.CLOSED, () -> Batch.create(schema, Device.CPU, tooFew, release), "Batch.create");
        }
        release.assertNotYet();
        assertEquals(0, Check.pending());
        Tensor.create(memory, DType.FLOAT64, new long[] {1}, release).close();
        release.assertOnce();
    }

    @Test
    void aRefusedMoveLeavesTheHandleOpen() throws InterruptedException {
        Release release = new Release();
        Tensor tensor = tensor(release);
        refused(Status.INVALID_STREAM, () -> tensor.exportMove(DlpackRequest.DEFAULT.withStream(7)));
        assertFalse(tensor.isClosed());
        assertEquals(1, tensor.getDouble(0));
        tensor.close();
        release.assertOnce();
        Release other = new Release();
        Batch batch = batch(other);
        refused(Status.NULL_ARGUMENT, () -> batch.exportMove(0), "out is NULL");
        refused(Status.NULL_ARGUMENT, () -> batch.exportMoveDevice(0), "out is NULL");
        assertFalse(batch.isClosed());
        batch.close();
        other.assertOnce();
    }

    /** Whichever buffer is collected first: the newest one, the oldest one, or one in between. */
    @Test
    void nothingIsLeftOfBuffersThatWereCollected() throws InterruptedException {
        for (int[] order : new int[][] {{0, 1, 2}, {1, 0, 2}, {1, 2, 0}, {2, 1, 0}}) {
            try (Tensor tensor = tensor(null);
                    Tensor same = Tensor.importDlpack(tensor.exportShare())) {
                ByteBuffer[] buffers = new ByteBuffer[3];
                same.enter("test");
                for (int i = 0; i < buffers.length; i++) {
                    buffers[i] = same.view(tensor.address() + 8L * i, 8);
                }
                same.exit();
                for (int i = 0; i < order.length; i++) {
                    buffers[order[i]] = null;
                    int left = buffers.length - 1 - i;
                    Check.collected(() -> views(same.handle) == left);
                }
            }
        }
    }

    private static int views(Handle handle) {
        int count = 0;
        synchronized (handle) {
            for (View view = handle.views; view != null; view = view.next) {
                count++;
            }
        }
        return count;
    }

    @Test
    void withoutACallbackTheBufferIsStillKept() throws InterruptedException {
        Tensor tensor = tensor(null);
        assertEquals(1, Check.pending());
        long exported = tensor.exportMove();
        System.gc();
        try (Tensor imported = Tensor.importDlpack(exported)) {
            assertEquals(3, imported.getDouble(2));
        }
        Check.flush();
        assertEquals(0, Check.pending());
        // Memory at an address that outlives everything needs no owner.
        ByteBuffer memory = Direct.bytes(1);
        try (Tensor forever =
                Tensor.create(Direct.address(memory), Device.CPU, DType.INT8, new long[] {1}, null, 0, null)) {
            assertEquals(0, Check.pending());
            assertEquals(memory.get(0), forever.getLong(0));
        }
    }

    @Test
    void manyThreadsCloseAndExactlyOneReleaseComes() throws InterruptedException {
        for (int round = 0; round < 100; round++) {
            Release release = new Release();
            Tensor tensor = tensor(release);
            List<Runnable> giveUp = new ArrayList<>();
            for (int i = 0; i < 4; i++) {
                Tensor share = tensor.share();
                long exported = tensor.exportShare();
                giveUp.add(() -> {
                    share.close();
                    Tensor.importDlpack(exported).close();
                    tensor.close();
                });
            }
            Threads threads = new Threads();
            giveUp.forEach(threads::start);
            threads.join();
            release.assertOnce();
        }
    }

    @Test
    void ofManyMovesOneWins() throws InterruptedException {
        for (int round = 0; round < 200; round++) {
            Release release = new Release();
            Tensor tensor = tensor(release);
            AtomicInteger moved = new AtomicInteger();
            AtomicInteger closed = new AtomicInteger();
            Threads threads = Threads.start(3, () -> {
                try {
                    long exported = tensor.exportMove();
                    moved.incrementAndGet();
                    Dlpack.release(exported);
                } catch (DevExchangeException e) {
                    assertEquals(Status.CLOSED, e.status());
                    closed.incrementAndGet();
                }
            });
            threads.join();
            assertEquals(1, moved.get());
            assertEquals(2, closed.get());
            release.assertOnce();
        }
    }

    /** A move of a tensor that is in use shares first, and takes that back if another move was quicker. */
    @Test
    void ofManyMovesOfWhatIsInUseOneWins() throws InterruptedException {
        for (int round = 0; round < 200; round++) {
            Release release = new Release();
            Tensor tensor = tensor(release);
            AtomicInteger moved = new AtomicInteger();
            tensor.enter("test");
            Threads threads = Threads.start(3, () -> {
                try {
                    Dlpack.release(tensor.exportMove());
                    moved.incrementAndGet();
                } catch (DevExchangeException e) {
                    assertEquals(Status.CLOSED, e.status());
                }
            });
            threads.join();
            assertEquals(1, moved.get());
            release.assertNotYet();
            tensor.exit();
            release.assertOnce();
        }
    }

    /** As if another thread had closed the tensor between the export and the end of the move. */
    @Test
    void whatSomebodyElseClosedMeanwhileIsNotMoved() {
        Batch batch = batch(null);
        try (CStruct array = CStruct.arrowArray()) {
            batch.exportShare(array.address());
            batch.close();
            refused(
                    Status.CLOSED,
                    () -> batch.handle.moved("Batch.exportMove", Handle.Kind.ARROW_ARRAY, array.address()),
                    "Batch.exportMove: the batch is closed");
            assertTrue(array.isReleased());
        }
    }
}
