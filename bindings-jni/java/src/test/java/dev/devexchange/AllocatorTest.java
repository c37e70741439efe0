package dev.devexchange;

import static dev.devexchange.Check.refused;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** A memory manager that is written in Java. */
@ExtendWith(Check.class)
class AllocatorTest {
    private static final MemoryRequest EIGHT = MemoryRequest.of(Device.CPU, 8);
    private static final long[] FOUR = {4};

    /** Gives memory of direct buffers, and records what it was asked. */
    private static class Buffers implements Allocator {
        final List<String> calls = Collections.synchronizedList(new ArrayList<>());
        final AtomicLong live = new AtomicLong();
        final AtomicInteger given = new AtomicInteger();
        volatile Thread thread;

        @Override
        public Allocation allocate(MemoryRequest request) {
            thread = Thread.currentThread();
            given.incrementAndGet();
            live.addAndGet(request.bytes());
            return Allocation.of(Direct.room((int) request.bytes()), () -> live.addAndGet(-request.bytes()));
        }

        @Override
        public void initialize(int deviceId) {
            calls.add("initialize " + deviceId);
        }

        @Override
        public Runnable pin(int deviceId, long address, long bytes, int hostFlags) {
            calls.add("pin " + deviceId + " " + bytes + " " + hostFlags);
            return () -> calls.add("unpin");
        }

        @Override
        public MemoryInfo memoryInfo(int deviceId) {
            calls.add("memoryInfo " + deviceId);
            return new MemoryInfo(1L << 40, 3L << 40);
        }

        @Override
        public IpcHandle ipcHandle(long address) {
            calls.add("ipcHandle " + address);
            byte[] handle = new byte[64];
            Arrays.fill(handle, (byte) 5);
            return new IpcHandle(handle, 3, 8, 1);
        }

        @Override
        public void reset(int deviceId) {
            calls.add("reset " + deviceId);
        }

        @Override
        public void trim(int deviceId, long keep) {
            calls.add("trim " + deviceId + " " + keep);
        }

        @Override
        public void deferCleanup(boolean begin) {
            calls.add("deferCleanup " + begin);
        }
    }

    @Test
    void tensorsLieInItsMemory() throws InterruptedException {
        Release release = new Release();
        Buffers buffers = new Buffers();
        MemoryManager manager = MemoryManager.of(buffers, release);
        Tensor tensor = Tensor.allocate(manager, Device.CPU, DType.INT32, FOUR, null);
        assertTrue(buffers.thread.getName().startsWith("devexchange-worker-"), buffers.thread.getName());
        tensor.byteBuffer().putInt(12, 42);
        assertEquals(16, buffers.live.get());
        assertEquals(new ManagerStatistics(16, 16, 1, 1, 16, 0), manager.statistics());
        manager.close();
        release.assertNotYet();
        try (Tensor imported = Tensor.importDlpack(tensor.exportMove())) {
            System.gc();
            assertEquals(42, imported.getLong(3));
            assertEquals(16, buffers.live.get());
        }
        release.assertOnce();
        assertEquals(0, buffers.live.get());
        assertEquals("devexchange-releases", release.thread().getName());
    }

    @Test
    void itGetsWhatWasAskedFor() {
        AtomicReference<MemoryRequest> seen = new AtomicReference<>();
        Allocator allocator = request -> {
            seen.set(request);
            return new Allocation(8, Device.CPU, null);
        };
        try (MemoryManager manager = MemoryManager.of(allocator, null)) {
            List<MemoryRequest> requests = List.of(
                    EIGHT,
                    MemoryRequest.of(new Device(DeviceType.CUDA_HOST, 3), 0)
                            .withHostFlags(HostFlags.PORTABLE | HostFlags.MAPPED | HostFlags.WRITE_COMBINED),
                    MemoryRequest.of(new Device(DeviceType.CUDA_MANAGED, -1), 1L << 40));
            for (MemoryRequest request : requests) {
                try (Memory memory = manager.allocate(request)) {
                    assertEquals(request, seen.get());
                    assertEquals(Device.CPU, memory.device());
                    assertEquals(request.bytes(), memory.bytes());
                }
            }
        }
    }

    @Test
    void aBufferHasToBeLargeEnoughAndWritable() throws InterruptedException {
        Release release = new Release();
        try (MemoryManager manager = MemoryManager.of(request -> Allocation.of(Direct.room(7), release), null)) {
            refused(Status.CALLBACK, () -> manager.allocate(EIGHT), "7 bytes", "asked for 8");
            Check.flush();
            release.assertOnce();
        }
        ByteBuffer readOnly = Direct.room(8).asReadOnlyBuffer().order(ByteOrder.nativeOrder());
        refused(Status.INVALID_ARGUMENT, () -> Allocation.of(readOnly, null), "memory is a read-only ByteBuffer");
    }

    @Test
    void memoryOfTheHostIsABuffer() {
        try (MemoryManager manager = MemoryManager.of(new Buffers(), null);
                Memory memory = manager.allocate(EIGHT)) {
            memory.byteBuffer().putLong(0, 7);
            assertEquals(7, memory.byteBuffer().getLong(0));
            assertEquals(memory.address(), Direct.address(memory.byteBuffer()));
            Memory gone = manager.allocate(EIGHT);
            gone.close();
            refused(Status.CLOSED, gone::byteBuffer, "Memory.byteBuffer");
        }
    }

    @Test
    void halfACharacterLeavesTheOthersAlone() {
        Allocator allocator = request -> {
            throw new IllegalStateException("ä\ud83c 東");
        };
        try (MemoryManager manager = MemoryManager.of(allocator, null)) {
            refused(Status.CALLBACK, () -> manager.allocate(EIGHT), "ä? 東");
        }
    }

    @Test
    void everythingElseReachesIt() throws InterruptedException {
        Buffers buffers = new Buffers();
        try (MemoryManager manager = MemoryManager.of(buffers, null)) {
            manager.initialize(1);
            assertEquals(new MemoryInfo(1L << 40, 3L << 40), manager.memoryInfo(2));
            Memory pinned = manager.pin(3, Direct.room(24), HostFlags.PORTABLE);
            assertEquals(24, pinned.bytes());
            assertEquals(DeviceType.CUDA_HOST, pinned.device().type());
            pinned.close();
            IpcHandle handle = manager.ipcHandle(4096);
            assertEquals(buffers.ipcHandle(4096), handle);
            assertEquals(handle.hashCode(), buffers.ipcHandle(4096).hashCode());
            assertEquals(5, handle.handle()[63]);
            manager.trim(4, 1L << 33);
            Check.flush();
            try (DeferredCleanup scope = manager.deferCleanup()) {
                Memory memory = manager.allocate(EIGHT);
                memory.close();
                Check.flush();
                assertEquals(8, buffers.live.get(), "held back");
                assertFalse(scope.isClosed());
            }
            Check.flush();
            assertEquals(0, buffers.live.get());
            Memory left = manager.allocate(EIGHT);
            manager.reset(0);
            Check.flush();
            assertEquals(8, buffers.live.get(), "host memory goes with no device");
            manager.reset(5);
            left.close();
            Check.flush();
            assertEquals(0, buffers.live.get());
        }
        assertEquals(
                List.of("initialize 1", "memoryInfo 2", "pin 3 24 1", "ipcHandle 4096", "ipcHandle 4096",
                        "ipcHandle 4096", "trim 4 8589934592", "unpin", "deferCleanup true", "deferCleanup false",
                        "reset 0", "reset 5"),
                sorted(buffers.calls));
    }

    /** Unpinning happens on another thread, at any time before the queue is flushed. */
    private static List<String> sorted(List<String> calls) {
        List<String> sorted = new ArrayList<>(calls);
        sorted.remove("unpin");
        sorted.add(sorted.indexOf("trim 4 8589934592") + 1, "unpin");
        return sorted;
    }

    @Test
    void whatItLeavesOutIsRefusedOrNothing() {
        try (MemoryManager manager = MemoryManager.of(request -> Allocation.of(Direct.room(8), null), null)) {
            manager.initialize(0);
            manager.trim(0, 0);
            manager.reset(0);
            manager.deferCleanup().close();
            refused(Status.UNSUPPORTED, () -> manager.memoryInfo(0), "memory_info: the manager does not know");
            refused(Status.UNSUPPORTED, () -> manager.pin(0, 4096, 8, 0), "pin: the manager cannot pin");
            // The driver is asked, but is absent or does not know the address.
            assertThrows(DevExchangeException.class, () -> manager.ipcHandle(4096));
        }
    }

    @Test
    void whatItThrowsIsTheErrorOfTheCall() {
        AtomicReference<Throwable> thrown = new AtomicReference<>();
        Allocator broken = new Allocator() {
            @Override
            public Allocation allocate(MemoryRequest request) throws Exception {
                if (thrown.get() instanceof Error error) {
                    throw error;
                }
                throw (Exception) thrown.get();
            }

            @Override
            public void initialize(int deviceId) {
                throw new IllegalStateException("at " + deviceId);
            }

            @Override
            public Runnable pin(int deviceId, long address, long bytes, int hostFlags) throws Exception {
                throw new IOException("pinned \u00e4");
            }

            @Override
            public MemoryInfo memoryInfo(int deviceId) {
                return null;
            }

            @Override
            public IpcHandle ipcHandle(long address) {
                throw new StackOverflowError();
            }

            @Override
            public void reset(int deviceId) {
                throw new DevExchangeException(Status.BUSY, "not now");
            }

            @Override
            public void trim(int deviceId, long keep) {
                throw new DevExchangeException(1234, "a status that nobody knows");
            }

            @Override
            public void deferCleanup(boolean begin) {
                throw new IllegalStateException("there is nobody to tell");
            }
        };
        try (MemoryManager manager = MemoryManager.of(broken, null)) {
            thrown.set(new IllegalStateException("on purpose"));
            String text = "allocate: java.lang.IllegalStateException: on purpose";
            refused(Status.CALLBACK, () -> manager.allocate(EIGHT), text);
            refused(
                    Status.CALLBACK,
                    () -> Tensor.allocate(manager, Device.CPU, DType.INT32, FOUR, null),
                    text);
            thrown.set(new OutOfMemoryError("no more"));
            refused(Status.OUT_OF_MEMORY, () -> manager.allocate(EIGHT), "java.lang.OutOfMemoryError: no more");
            assertEquals(1, manager.statistics().refused());
            thrown.set(new DevExchangeException(Status.OUT_OF_MEMORY, "8 bytes are too many"));
            refused(Status.OUT_OF_MEMORY, () -> manager.allocate(EIGHT), "allocate: 8 bytes are too many");
            assertEquals(2, manager.statistics().refused());
            thrown.set(new RuntimeException() {
                private static final long serialVersionUID = 1L;

                @Override
                public String toString() {
                    throw new IllegalStateException("not even that");
                }
            });
            refused(Status.CALLBACK, () -> manager.allocate(EIGHT), "allocate: " + getClass().getName());
            thrown.set(new IllegalStateException("x".repeat(10_000)));
            refused(Status.CALLBACK, () -> manager.allocate(EIGHT), "xxx");
            refused(Status.CALLBACK, () -> manager.initialize(2), "initialize: java.lang.IllegalStateException: at 2");
            refused(Status.CALLBACK, () -> manager.pin(0, 4096, 8, 0), "pin: java.io.IOException: pinned \u00e4");
            refused(Status.CALLBACK, () -> manager.pin(0, Direct.room(8), 0), "pin: java.io.IOException");
            refused(Status.CALLBACK, () -> manager.memoryInfo(0), "memory_info", "memoryInfo returned null");
            refused(Status.CALLBACK, () -> manager.ipcHandle(8), "ipc_handle: java.lang.StackOverflowError");
            refused(Status.BUSY, () -> manager.reset(0), "reset: not now");
            refused(1234, () -> manager.trim(0, 0), "trim: a status that nobody knows");
            manager.deferCleanup().close();
            assertEquals(0, manager.statistics().allocations());
            assertEquals(0, manager.statistics().bytes());
        }
        assertThrows(IllegalArgumentException.class, () -> new DevExchangeException(Status.OK, "fine"));
        assertThrows(NullPointerException.class, () -> new DevExchangeException(Status.BUSY, null));
    }

    /** Memory that cannot be used is given back once. */
    @Test
    void badAnswersAreErrorsAndLeakNothing() throws InterruptedException {
        AtomicReference<Allocation> answer = new AtomicReference<>();
        try (MemoryManager manager = MemoryManager.of(request -> answer.get(), null)) {
            refused(Status.CALLBACK, () -> manager.allocate(EIGHT), "allocate", "allocate returned null");
            Release noAddress = new Release();
            answer.set(new Allocation(0, Device.CPU, noAddress));
            refused(Status.CALLBACK, () -> manager.allocate(EIGHT), "allocate", "no address for 8 bytes");
            noAddress.assertOnce();
            Release noDevice = new Release();
            answer.set(new Allocation(4096, new Device(new DeviceType(99), 0), noDevice));
            refused(Status.CALLBACK, () -> manager.allocate(EIGHT), "allocate", "device type 99:0 for cpu:0");
            noDevice.assertOnce();
            Release wrongId = new Release();
            answer.set(new Allocation(4096, new Device(DeviceType.CPU, 7), wrongId));
            refused(Status.DEVICE, () -> manager.allocate(EIGHT), "allocate", "7");
            wrongId.assertOnce();
            // Refused while the allocator still has the memory.
            assertThrows(NullPointerException.class, () -> new Allocation(4096, null, null), "device");
            assertThrows(NullPointerException.class, () -> new Device(null, 0), "type");
            assertThrows(NullPointerException.class, () -> MemoryRequest.of(null, 8), "device");
            Release misaligned = new Release();
            answer.set(new Allocation(4097, Device.CPU, misaligned));
            refused(
                    Status.INVALID_ARGUMENT,
                    () -> Tensor.allocate(manager, Device.CPU, DType.INT32, FOUR, null),
                    "0x1001");
            misaligned.assertOnce();
            assertEquals(0, manager.statistics().allocations());
            // 0 bytes at address 0 are fine.
            answer.set(new Allocation(0, Device.CPU, null));
            manager.allocate(MemoryRequest.of(Device.CPU, 0)).close();
        }
        ByteBuffer heap = ByteBuffer.allocate(8);
        refused(Status.INVALID_ARGUMENT, () -> Allocation.of(heap, null), "memory is a heap ByteBuffer");
        refused(
                Status.INVALID_ARGUMENT,
                () -> new IpcHandle(new byte[3], 0, 0, 0),
                "handle has 3 bytes: it must have 64");
        Allocator wrong = new Buffers() {
            @Override
            public MemoryInfo memoryInfo(int deviceId) {
                return new MemoryInfo(-5, 3);
            }

            @Override
            public IpcHandle ipcHandle(long address) {
                return new IpcHandle(new byte[64], 9, 8, 0);
            }
        };
        try (MemoryManager manager = MemoryManager.of(wrong, null)) {
            refused(Status.CALLBACK, () -> manager.memoryInfo(0), "memory_info", "-5");
            refused(Status.CALLBACK, () -> manager.ipcHandle(8), "ipc_handle", "offset 9 of 8 bytes");
        }
    }

    @Test
    void aHandleForOtherProcessesIsAValue() {
        byte[] bytes = new byte[IpcHandle.HANDLE_BYTES];
        IpcHandle handle = new IpcHandle(bytes, 1, 2, 3);
        IpcHandle same = new IpcHandle(bytes, 1, 2, 3);
        bytes[0] = 9;
        handle.handle()[0] = 9;
        assertEquals(same, handle);
        assertEquals(same.hashCode(), handle.hashCode());
        assertEquals(0, handle.handle()[0]);
        for (IpcHandle other : List.of(
                new IpcHandle(bytes, 1, 2, 3),
                new IpcHandle(handle.handle(), 0, 2, 3),
                new IpcHandle(handle.handle(), 1, 0, 3),
                new IpcHandle(handle.handle(), 1, 2, 0))) {
            assertNotEquals(handle, other);
        }
    }

    /** Callbacks may use the library, other managers and the same one. */
    @Test
    void itMayAskOthers() {
        Buffers buffers = new Buffers();
        AtomicReference<MemoryManager> itself = new AtomicReference<>();
        Allocator nested = request -> {
            if (request.bytes() > 1) {
                Memory half = itself.get().allocate(MemoryRequest.of(Device.CPU, request.bytes() / 2));
                return new Allocation(half.address(), half.device(), half::close);
            }
            return Allocation.of(Direct.room(64), null);
        };
        try (MemoryManager inner = MemoryManager.of(buffers, null);
                MemoryManager limited = MemoryManager.limited(inner, 20);
                MemoryManager outer = MemoryManager.of(nested, null)) {
            itself.set(outer);
            outer.allocate(MemoryRequest.of(Device.CPU, 64)).close();
            assertEquals(7, outer.statistics().totalAllocations());
            limited.allocate(EIGHT).close();
            refused(Status.OUT_OF_MEMORY, () -> limited.allocate(MemoryRequest.of(Device.CPU, 21)), "21 bytes");
            assertEquals(1, buffers.given.get());
            assertEquals(new MemoryInfo(20, 20), limited.memoryInfo(0));
        }
    }

    /** A call that waits does not make other calls wait. */
    @Test
    void slowAnswersHoldNobodyUp() throws InterruptedException {
        CountDownLatch begun = new CountDownLatch(1);
        CountDownLatch go = new CountDownLatch(1);
        Allocator slow = request -> {
            if (request.bytes() == 1) {
                begun.countDown();
                go.await();
            }
            return Allocation.of(Direct.room(8), null);
        };
        try (MemoryManager manager = MemoryManager.of(slow, null)) {
            Threads waiting = Threads.start(1, () -> manager.allocate(MemoryRequest.of(Device.CPU, 1)).close());
            begun.await();
            for (int i = 0; i < 100; i++) {
                manager.allocate(EIGHT).close();
            }
            assertTrue(waiting.areAlive());
            go.countDown();
            waiting.join();
            assertEquals(101, manager.statistics().totalAllocations());
        }
    }

    /** Closes the manager while another thread allocates. */
    @Test
    void closingWhileOthersAllocateIsSafe() throws InterruptedException {
        for (int round = 0; round < 100; round++) {
            Release release = new Release();
            MemoryManager manager = MemoryManager.of(new Buffers(), release);
            CountDownLatch started = new CountDownLatch(2);
            Threads threads = Threads.start(2, () -> {
                started.countDown();
                DevExchangeException end = assertThrows(DevExchangeException.class, () -> {
                    while (true) {
                        manager.allocate(EIGHT).close();
                    }
                });
                assertEquals(Status.CLOSED, end.status());
            });
            started.await();
            manager.close();
            threads.join();
            release.assertOnce();
        }
    }

    @Test
    void severalThreadsAllocateUnderPressure() throws InterruptedException {
        Release release = new Release();
        Buffers buffers = new Buffers();
        Threads threads = new Threads();
        try (MemoryManager manager = MemoryManager.of(buffers, release)) {
            for (int i = 0; i < 4; i++) {
                int number = i;
                threads.start(() -> allocate(manager, number));
            }
            while (threads.areAlive()) {
                System.gc();
                Thread.sleep(5);
            }
            threads.join();
            assertEquals(10_000, manager.statistics().totalAllocations());
            assertEquals(0, manager.statistics().allocations());
            assertEquals(10_000, buffers.given.get());
        }
        release.assertOnce();
        assertEquals(0, buffers.live.get());
    }

    private static void allocate(MemoryManager manager, int number) {
        List<byte[]> garbage = new ArrayList<>();
        for (int round = 0; round < 2500; round++) {
            garbage.add(new byte[10_000]);
            if (garbage.size() > 16) {
                garbage.clear();
            }
            try (Tensor tensor = Tensor.allocate(manager, Device.CPU, DType.INT64, FOUR, null)) {
                tensor.byteBuffer().putLong(24, number * 10_000L + round);
                try (Tensor imported = Tensor.importDlpack(tensor.exportShare())) {
                    assertEquals(number * 10_000L + round, imported.getLong(3));
                }
            }
        }
    }

    @Test
    void tenThousandManagersEndWhereTheyBegan() throws InterruptedException {
        Release release = new Release();
        Release memory = new Release();
        ByteBuffer room = Direct.room(8);
        Ledger before = DevExchange.ledger();
        for (int i = 0; i < 10_000; i++) {
            try (MemoryManager manager = MemoryManager.of(request -> Allocation.of(room, memory), release)) {
                manager.allocate(EIGHT).close();
            }
        }
        assertEquals(10_000, release.count());
        assertEquals(10_000, memory.count());
        assertEquals(before.owners().live(), DevExchange.ledger().owners().live());
    }

    /** A manager is not collected as long as memory from it is held. */
    @Test
    void aForgottenManagerIsReleasedAfterItsMemory() throws InterruptedException {
        Release release = new Release();
        Memory memory = allocated(release);
        Check.collect();
        release.assertNotYet();
        memory.close();
        Check.collected(() -> release.count() > 0);
        release.assertOnce();
    }

    private static Memory allocated(Release release) {
        return MemoryManager.of(new Buffers(), release).allocate(EIGHT);
    }

    @Test
    void whoWaitsForAJvmThatEndsIsToldSo() throws IOException, InterruptedException {
        Jvm.End end = Jvm.run(List.of("-Xcheck:jni"), Map.of(), AtExit.class);
        assertEquals(0, end.status(), end.output());
        assertEquals("allocate: the JVM that the manager is in is exiting", end.output().strip());
    }

    /** Leaves a thread that waits for memory to the end of the process. */
    static final class AtExit {
        private AtExit() {}

        public static void main(String[] arguments) throws InterruptedException {
            CountDownLatch asked = new CountDownLatch(1);
            Allocator stuck = request -> {
                asked.countDown();
                new CountDownLatch(1).await();
                return null;
            };
            MemoryManager manager = MemoryManager.of(stuck, null);
            Thread waiting = new Thread(() -> {
                try {
                    manager.allocate(MemoryRequest.of(Device.CPU, 8));
                } catch (DevExchangeException e) {
                    System.out.println(e.getMessage());
                }
            });
            waiting.setDaemon(true);
            waiting.start();
            asked.await();
            // The JVM waits for this thread, and this one for the other.
            Runtime.getRuntime().addShutdownHook(new Thread(() -> {
                try {
                    waiting.join();
                } catch (InterruptedException e) {
                    throw new AssertionError(e);
                }
            }));
        }
    }
}
