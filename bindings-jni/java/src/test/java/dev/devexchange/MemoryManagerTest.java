package dev.devexchange;

import static dev.devexchange.Check.refused;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** The managers that come with the library: host memory here, memory of devices in {@link ManagerScenario}. */
@ExtendWith(Check.class)
class MemoryManagerTest {
    private static final long[] FOUR = {4};

    // ---- without a driver ----

    @Test
    void hostMemoryIsGivenAndTakenBack() {
        MemoryManager manager = MemoryManager.hostOnly();
        Memory memory = manager.allocate(MemoryRequest.of(Device.CPU, 1000));
        ByteBuffer bytes = HostMemory.view(memory.address(), memory.bytes());
        for (int i = 0; i < 1000; i += 8) {
            bytes.putLong(i, i);
        }
        assertEquals(Device.CPU, memory.device());
        assertEquals(1000, memory.bytes());
        assertEquals("Memory (1000 bytes, cpu:0)", memory.toString());
        assertEquals("MemoryManager (1000 bytes in use)", manager.toString());
        assertEquals(new ManagerStatistics(1000, 1000, 1, 1, 1000, 0), manager.statistics());
        try (Tensor tensor = Tensor.allocate(manager, Device.CPU, DType.INT32, new long[] {2, 3}, null)) {
            tensor.byteBuffer().putInt(20, 6);
            assertEquals(6, tensor.getLong(1, 2));
            assertEquals(new ManagerStatistics(1024, 1024, 2, 2, 1024, 0), manager.statistics());
        }
        manager.close();
        // The memory outlives the manager.
        assertEquals(992, bytes.getLong(992));
        memory.close();
        memory.close();
        assertEquals("Memory (closed)", memory.toString());
        assertEquals("MemoryManager (closed)", manager.toString());
    }

    @Test
    void aTensorMayBeMadeOverMemoryOfAManager() throws InterruptedException {
        try (MemoryManager manager = MemoryManager.driver()) {
            Memory memory = manager.allocate(MemoryRequest.of(Device.CPU, 16));
            Tensor tensor = Tensor.create(
                    memory.address(), memory.device(), DType.INT32, FOUR, null, Flags.NONE, memory::close);
            tensor.byteBuffer().putInt(12, 7);
            try (Tensor imported = Tensor.importDlpack(tensor.exportMove())) {
                assertEquals(7, imported.getLong(3));
                assertEquals(16, manager.statistics().bytes());
            }
            Check.flush();
            assertTrue(memory.isClosed());
            assertEquals(new ManagerStatistics(0, 16, 0, 1, 16, 0), manager.statistics());
        }
    }

    @Test
    void nothingIsMemoryToo() {
        try (MemoryManager manager = MemoryManager.hostOnly();
                Memory nothing = manager.allocate(MemoryRequest.of(Device.CPU, 0));
                Tensor empty = Tensor.allocate(manager, Device.CPU, DType.INT8, new long[] {0, 3}, null)) {
            assertEquals(0, nothing.bytes());
            assertEquals(0, empty.elements());
        }
    }

    @Test
    void limitsCountWhatIsInUse() {
        MemoryManager host = MemoryManager.hostOnly();
        try (MemoryManager limited = MemoryManager.limited(host, 100);
                MemoryManager counted = MemoryManager.limited(host, MemoryManager.NO_LIMIT)) {
            Memory first = limited.allocate(MemoryRequest.of(Device.CPU, 60));
            refused(
                    Status.OUT_OF_MEMORY,
                    () -> limited.allocate(MemoryRequest.of(Device.CPU, 41)),
                    "41 bytes with 60 in use",
                    "the limit of 100");
            refused(
                    Status.OUT_OF_MEMORY,
                    () -> Tensor.allocate(limited, Device.CPU, DType.INT64, new long[] {6}, null),
                    "48 bytes");
            limited.allocate(MemoryRequest.of(Device.CPU, 40)).close();
            assertEquals(new ManagerStatistics(60, 100, 1, 2, 100, 2), limited.statistics());
            counted.allocate(MemoryRequest.of(Device.CPU, 1 << 20)).close();
            assertEquals(1, counted.statistics().totalAllocations());
            assertEquals(3, host.statistics().totalAllocations());
            host.close();
            first.close();
            assertEquals(0, limited.statistics().bytes());
            try (Memory all = limited.allocate(MemoryRequest.of(Device.CPU, 100))) {
                limited.reset(0);
                assertEquals(100, all.bytes());
                assertEquals(1, limited.statistics().allocations(), "host memory goes with no device");
            }
            assertEquals(0, limited.statistics().allocations());
        }
    }

    @Test
    void everyArgumentThatIsWrongIsNamed() {
        for (long wrong : new long[] {-2, Long.MIN_VALUE}) {
            refused(Status.INVALID_ARGUMENT, () -> MemoryManager.pool(wrong, -1), "limit is " + wrong);
            refused(Status.INVALID_ARGUMENT, () -> MemoryManager.pool(-1, wrong), "keep is " + wrong);
            refused(Status.INVALID_ARGUMENT, () -> MemoryManager.shareablePool(0, wrong), "keep is " + wrong);
            refused(Status.INVALID_ARGUMENT, () -> MemoryManager.limited(null, wrong), "limit is " + wrong);
        }
        assertThrows(NullPointerException.class, () -> MemoryManager.limited(null, 1));
        assertThrows(NullPointerException.class, () -> MemoryManager.of(null, null));
        assertThrows(
                NullPointerException.class, () -> Tensor.allocate(null, Device.CPU, DType.INT8, FOUR, null));
        try (MemoryManager manager = MemoryManager.hostOnly()) {
            MemoryRequest request = MemoryRequest.of(Device.CPU, 8);
            refused(
                    Status.INVALID_ARGUMENT,
                    () -> manager.allocate(MemoryRequest.of(Device.CPU, -8)),
                    "bytes is -8");
            refused(
                    Status.INVALID_ARGUMENT, () -> manager.allocate(request.withHostFlags(8)), "host_flags is 0x8");
            refused(
                    Status.UNSUPPORTED,
                    () -> manager.allocate(MemoryRequest.of(Device.cuda(0), 8)),
                    "device_type is cuda",
                    "host-only");
            refused(
                    Status.UNSUPPORTED,
                    () -> manager.allocate(MemoryRequest.of(new Device(new DeviceType(99), 0), 8)),
                    "99");
            refused(
                    Status.OUT_OF_MEMORY,
                    () -> manager.allocate(MemoryRequest.of(Device.CPU, Long.MAX_VALUE)),
                    String.valueOf(Long.MAX_VALUE));
            refused(Status.INVALID_ARGUMENT, () -> manager.trim(0, -1), "keep is -1");
            refused(Status.INVALID_ARGUMENT, () -> manager.pin(0, 4096, -1, 0), "bytes is -1");
            refused(Status.INVALID_ARGUMENT, () -> manager.pin(0, 4096, 8, 16), "host_flags is 0x10");
            refused(
                    Status.INVALID_ARGUMENT,
                    () -> manager.pin(0, ByteBuffer.allocate(8), 0),
                    "memory is a heap ByteBuffer");
            refused(
                    Status.INVALID_SHAPE,
                    () -> Tensor.allocate(manager, Device.CPU, DType.INT8, new long[] {-1}, null),
                    "-1");
            assertEquals(0, manager.statistics().bytes());
            assertEquals(0, Check.pending());
        }
    }

    @Test
    void aClosedManagerIsNotUsed() {
        MemoryManager manager = MemoryManager.hostOnly();
        manager.close();
        refused(Status.CLOSED, () -> MemoryManager.limited(manager, 1), "MemoryManager.limited");
        refused(
                Status.CLOSED,
                () -> Tensor.allocate(manager, Device.CPU, DType.INT8, FOUR, null),
                "Tensor.allocate",
                "the manager is closed");
    }

    @Test
    void cleanupIsDeferredAndReset() {
        MemoryManager manager = MemoryManager.hostOnly();
        Memory memory = manager.allocate(MemoryRequest.of(Device.CPU, 10));
        DeferredCleanup outer = manager.deferCleanup();
        try (DeferredCleanup inner = manager.deferCleanup()) {
            memory.close();
            assertFalse(inner.isClosed());
        }
        assertEquals(0, manager.statistics().bytes());
        outer.close();
        outer.close();
        assertTrue(outer.isClosed());
        Memory forgotten = manager.allocate(MemoryRequest.of(Device.CPU, 10));
        manager.reset(0);
        assertEquals(1, manager.statistics().allocations());
        forgotten.close();
        assertEquals(0, manager.statistics().allocations());
        manager.trim(0, 0);
        DeferredCleanup longer = manager.deferCleanup();
        manager.close();
        longer.close();
    }

    /** The garbage collector closes whatever of these nobody closed. */
    @Test
    void whatNobodyClosesIsGivenBack() throws InterruptedException {
        try (MemoryManager manager = MemoryManager.hostOnly()) {
            forget(manager);
            Check.collected(() -> manager.statistics().bytes() == 0);
            assertEquals(0, manager.statistics().bytes());
        }
    }

    private static void forget(MemoryManager manager) {
        manager.allocate(MemoryRequest.of(Device.CPU, 100));
        MemoryManager.limited(manager, 10).deferCleanup();
    }

    @Test
    void manyThreadsMayUseOne() throws InterruptedException {
        try (MemoryManager host = MemoryManager.hostOnly();
                MemoryManager limited = MemoryManager.limited(host, 4000)) {
            Threads threads = Threads.start(4, () -> {
                for (int round = 0; round < 2500; round++) {
                    limited.allocate(MemoryRequest.of(Device.CPU, 1000)).close();
                }
            });
            threads.join();
            ManagerStatistics all = limited.statistics();
            assertEquals(10_000, all.totalAllocations());
            assertEquals(10_000_000, all.totalBytes());
            assertEquals(0, all.bytes());
            assertTrue(all.peakBytes() <= 4000, all::toString);
        }
    }

    // ---- with the simulated driver ----

    @Test
    void memoryOfDevicesIsRightInEveryOrder() throws IOException, InterruptedException {
        Simulated.endsWellInEveryOrder(ManagerScenario.class, "everything");
    }

    @Test
    void anAllocatorInJavaMayStandInFrontOfTheDriver() throws IOException, InterruptedException {
        Simulated.endsWellInEveryOrder(ManagerScenario.class, "allocator");
    }

    @Test
    void aClosedStreamIsThereUntilTheReleaseOfItsMemoryHasRun() throws IOException, InterruptedException {
        Simulated.endsWellInEveryOrder(ManagerScenario.class, "closedStream");
    }
}
