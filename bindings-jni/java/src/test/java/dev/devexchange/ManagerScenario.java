package dev.devexchange;

import static dev.devexchange.DeviceScenario.CUDA;
import static dev.devexchange.DeviceScenario.SIX;
import static dev.devexchange.DeviceScenario.begin;
import static dev.devexchange.DeviceScenario.check;
import static dev.devexchange.DeviceScenario.closeGate;
import static dev.devexchange.DeviceScenario.filled;
import static dev.devexchange.DeviceScenario.finish;
import static dev.devexchange.DeviceScenario.flush;
import static dev.devexchange.DeviceScenario.holds;
import static dev.devexchange.DeviceScenario.openGate;
import static dev.devexchange.DeviceScenario.refused;
import static dev.devexchange.DeviceScenario.same;
import static dev.devexchange.DeviceScenario.settle;
import static dev.devexchange.DeviceScenario.stat;
import static dev.devexchange.DeviceScenario.work;

import java.nio.ByteBuffer;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

/** Programs with memory managers, for a JVM with a simulated CUDA driver; see {@link MemoryManagerTest}. */
final class ManagerScenario {
    private static final Device PINNED = new Device(DeviceType.CUDA_HOST, 0);
    private static final Device MANAGED = new Device(DeviceType.CUDA_MANAGED, 0);

    private ManagerScenario() {}

    public static void main(String[] arguments) throws Exception {
        begin();
        switch (arguments[0]) {
            case "everything" -> everything();
            case "allocator" -> allocator();
            case "closedStream" -> closedStream();
            default -> throw new AssertionError(arguments[0]);
        }
        System.out.println("main is done");
    }

    private static void everything() throws InterruptedException {
        every();
        kinds();
        pools();
        deferredAndReset();
        pinned();
        badInput();
        finish();
    }

    /** Six numbers through a tensor over a manager's memory, on a stream and without one. */
    private static void numbers(MemoryManager manager, DeviceStream stream) {
        for (DeviceStream ordered : new DeviceStream[] {stream, null}) {
            try (Tensor tensor = Tensor.allocate(manager, CUDA, DType.INT32, SIX, ordered)) {
                tensor.write(Direct.ints(1, 2, 3, 4, 5, 6), stream);
                holds(tensor, stream);
            }
        }
    }

    private static void every() throws InterruptedException {
        try (DeviceStream stream = DeviceStream.create(CUDA);
                MemoryManager driver = MemoryManager.driver();
                MemoryManager managed = MemoryManager.managed();
                MemoryManager pool = MemoryManager.pool(1 << 20, 0);
                MemoryManager shareable = MemoryManager.shareablePool(MemoryManager.NO_LIMIT, MemoryManager.NO_LIMIT);
                MemoryManager limited = MemoryManager.limited(driver, 64)) {
            for (MemoryManager manager : List.of(driver, managed, pool, shareable, limited)) {
                manager.initialize(0);
                numbers(manager, stream);
                settle();
                ManagerStatistics now = manager.statistics();
                same(0L, now.bytes());
                check(now.totalAllocations() >= 2);
                manager.trim(0, 0);
            }
            try (Memory given = managed.allocate(MemoryRequest.of(CUDA, 100))) {
                same(DeviceType.CUDA_MANAGED, given.device().type());
            }
            MemoryInfo info = driver.memoryInfo(0);
            check(info.totalBytes() == CUDA.info().totalBytes() && info.freeBytes() <= info.totalBytes());
            same(64L, limited.memoryInfo(0).totalBytes());
            stream.synchronize();
        }
        settle();
    }

    private static void kinds() {
        try (MemoryManager driver = MemoryManager.driver();
                DeviceStream stream = DeviceStream.create(CUDA)) {
            try (Memory device = driver.allocate(MemoryRequest.of(CUDA, 100));
                    Memory ordered = driver.allocate(MemoryRequest.of(CUDA, 100).withStream(stream.value()));
                    Memory pinned = driver.allocate(MemoryRequest.of(PINNED, 100).withHostFlags(HostFlags.PORTABLE));
                    Memory managed = driver.allocate(MemoryRequest.of(MANAGED, 100));
                    Memory host = driver.allocate(MemoryRequest.of(Device.CPU, 100))) {
                same(CUDA, device.device());
                same(CUDA, ordered.device());
                same(DeviceType.CUDA_HOST, pinned.device().type());
                same(DeviceType.CUDA_MANAGED, managed.device().type());
                same(Device.CPU, host.device());
                same(5L, driver.statistics().allocations());
                same(500L, driver.statistics().bytes());
                pinned.byteBuffer().putInt(96, 7);
                refused(Status.DEVICE, device::byteBuffer, "cuda:0");
                IpcHandle handle = driver.ipcHandle(device.address() + 5);
                same(5L, handle.offset());
                same(0, handle.deviceId());
                check(handle.bytes() >= 100);
                refused(Status.UNSUPPORTED, () -> driver.ipcHandle(ordered.address()), "of a pool");
                refused(Status.UNSUPPORTED, () -> driver.ipcHandle(pinned.address()));
            }
            try (MemoryManager pool = MemoryManager.shareablePool(MemoryManager.NO_LIMIT, 0);
                    Memory pooled = pool.allocate(MemoryRequest.of(CUDA, 100))) {
                refused(Status.UNSUPPORTED, () -> pool.ipcHandle(pooled.address()), "is memory of a pool");
            }
            same(0L, driver.statistics().bytes());
        }
    }

    private static void pools() throws InterruptedException {
        try (DeviceStream stream = DeviceStream.create(CUDA)) {
            MemoryManager pool = MemoryManager.pool(1000, MemoryManager.NO_LIMIT);
            Tensor first = Tensor.allocate(pool, CUDA, DType.INT8, new long[] {800}, stream);
            refused(
                    Status.OUT_OF_MEMORY,
                    () -> Tensor.allocate(pool, CUDA, DType.INT8, new long[] {201}, stream),
                    "201 bytes with 800 in use",
                    "1000");
            first.close();
            settle();
            Tensor.allocate(pool, CUDA, DType.INT8, new long[] {1000}, stream).close();
            settle();
            same(1L, pool.statistics().refused());
            same(1000L, pool.statistics().peakBytes());
            // Memory without a stream may be touched at once, on any stream.
            try (Memory now = pool.allocate(MemoryRequest.of(CUDA, 24));
                    Tensor source = filled(stream)) {
                same(0, work(now.address(), source.address(), 24, stream.value()));
                stream.synchronize();
            }
            // Memory that outlives its manager.
            Tensor last = Tensor.allocate(pool, CUDA, DType.INT32, SIX, stream);
            pool.close();
            last.write(Direct.ints(1, 2, 3, 4, 5, 6), stream);
            holds(last, stream);
            last.close();
            stream.synchronize();
        }
        settle();
    }

    private static void deferredAndReset() throws InterruptedException {
        try (MemoryManager driver = MemoryManager.driver()) {
            settle();
            same(0L, stat("live_device"));
            Memory memory = driver.allocate(MemoryRequest.of(CUDA, 256));
            try (DeferredCleanup scope = driver.deferCleanup()) {
                memory.close();
                settle();
                same(1L, stat("live_device"));
                check(!scope.isClosed());
            }
            settle();
            same(0L, stat("live_device"));
            Memory kept = driver.allocate(MemoryRequest.of(CUDA, 256));
            driver.reset(0);
            settle();
            same(0L, stat("live_device"));
            kept.close();
            settle();
            same(0L, stat("live_device"));
        }
    }

    /** Memory of a buffer, which stays reachable as long as it is pinned. */
    private static void pinned() throws InterruptedException {
        try (MemoryManager driver = MemoryManager.driver();
                DeviceStream stream = DeviceStream.create(CUDA);
                Tensor target = Tensor.allocate(driver, CUDA, DType.INT32, SIX, null)) {
            Memory memory = pin(driver);
            System.gc();
            try (Tensor source = Tensor.create(
                            memory.address(), memory.device(), DType.INT32, SIX, null, 0, null)) {
                source.checkPointers();
                same(0, work(target.address(), source.address(), 24, stream.value()));
                holds(target, stream);
            }
            same(1, ReleaseQueue.pending());
            memory.close();
            flush();
            same(0, ReleaseQueue.pending());
            ByteBuffer buffer = Direct.room(64);
            refused(
                    Status.INVALID_ARGUMENT,
                    () -> driver.pin(0, buffer, HostFlags.WRITE_COMBINED),
                    "write_combined is true");
            same(0, ReleaseQueue.pending());
            // Memory that its owner keeps.
            try (Memory same = driver.pin(0, Direct.address(buffer), 64, HostFlags.PORTABLE)) {
                same(Direct.address(buffer), same.address());
                same(0, ReleaseQueue.pending());
            }
        }
    }

    private static Memory pin(MemoryManager manager) {
        return manager.pin(0, Direct.ints(1, 2, 3, 4, 5, 6), HostFlags.PORTABLE | HostFlags.MAPPED);
    }

    private static void badInput() {
        try (MemoryManager driver = MemoryManager.driver()) {
            Device third = Device.cuda(2);
            refused(Status.DEVICE, () -> driver.allocate(MemoryRequest.of(third, 8)), "2");
            refused(Status.DEVICE, () -> driver.initialize(7), "7");
            refused(Status.DEVICE, () -> driver.memoryInfo(-1), "-1");
            MemoryRequest zero = MemoryRequest.of(CUDA, 8).withStream(0);
            refused(Status.INVALID_STREAM, () -> driver.allocate(zero), "stream is 0");
            MemoryRequest negative = MemoryRequest.of(CUDA, 8).withStream(-5);
            refused(Status.INVALID_STREAM, () -> driver.allocate(negative), "stream is -5");
            refused(
                    Status.OUT_OF_MEMORY,
                    () -> driver.allocate(MemoryRequest.of(CUDA, 1L << 60)),
                    "cuMemAlloc");
            DeviceStream closed = DeviceStream.create(CUDA);
            closed.close();
            refused(
                    Status.CLOSED,
                    () -> Tensor.allocate(driver, CUDA, DType.INT8, SIX, closed),
                    "Tensor.allocate",
                    "the stream is closed");
            same(0L, driver.statistics().bytes());
        }
    }

    /**
     * A manager in Java that passes requests on to the driver's manager: the order is kept, and each release comes
     * once.
     */
    private static void allocator() throws InterruptedException {
        AtomicInteger released = new AtomicInteger();
        AtomicInteger gone = new AtomicInteger();
        MemoryManager driver = MemoryManager.driver();
        Allocator allocator = request -> {
            Memory memory = driver.allocate(request);
            return new Allocation(memory.address(), memory.device(), () -> {
                memory.close();
                released.incrementAndGet();
            });
        };
        try (DeviceStream stream = DeviceStream.create(CUDA);
                Tensor target = Tensor.allocate(CUDA, DType.INT32, SIX, null)) {
            MemoryManager manager = MemoryManager.of(allocator, gone::incrementAndGet);
            for (int i = 0; i < 20; i++) {
                numbers(manager, stream);
            }
            stream.synchronize();
            settle();
            same(40, released.get());
            // The work that uses it is done first.
            Tensor plain = Tensor.allocate(manager, CUDA, DType.INT32, SIX, null);
            manager.close();
            plain.write(Direct.ints(1, 2, 3, 4, 5, 6), stream);
            same(0, closeGate(stream.value()));
            same(0, work(target.address(), plain.address(), 24, stream.value()));
            plain.usedOn(stream);
            plain.close();
            flush();
            same(40, released.get());
            same(0, gone.get());
            openGate();
            settle();
            same(41, released.get());
            same(1, gone.get());
            stream.synchronize();
            same(0L, driver.statistics().allocations());
        }
        // The driver is asked for a handle that the allocator does not give.
        try (MemoryManager manager = MemoryManager.of(allocator, null);
                Memory memory = manager.allocate(MemoryRequest.of(CUDA, 64))) {
            same(3L, manager.ipcHandle(memory.address() + 3).offset());
        }
        flush();
        driver.close();
        finish();
    }

    /** Memory goes back on the stream of its request, even if the stream is closed meanwhile or a release throws. */
    private static void closedStream() throws InterruptedException {
        try (MemoryManager pool = MemoryManager.pool(MemoryManager.NO_LIMIT, 0);
                DeviceStream user = DeviceStream.create(CUDA);
                Tensor target = Tensor.allocate(CUDA, DType.INT32, SIX, null)) {
            closedAfterARefusal();
            for (int round = 0; round < 4; round++) {
                boolean fails = round % 2 == 1;
                // Memory of a pool that is given back on the stream holds it by itself.
                boolean ordered = round < 2;
                AtomicLong there = new AtomicLong();
                Allocator allocator = request -> {
                    Memory memory = pool.allocate(ordered ? request : MemoryRequest.of(CUDA, request.bytes()));
                    return new Allocation(memory.address(), memory.device(), () -> {
                        // Time enough to destroy a stream that is not held, which takes another thread a moment.
                        awaitStreams(1, TimeUnit.MILLISECONDS.toNanos(50));
                        there.set(stat("live_streams"));
                        memory.close();
                        if (fails) {
                            throw new IllegalStateException("as it should");
                        }
                    });
                };
                DeviceStream stream = DeviceStream.create(CUDA);
                Tensor tensor;
                try (MemoryManager manager = MemoryManager.of(allocator, null)) {
                    tensor = Tensor.allocate(manager, CUDA, DType.INT32, SIX, stream);
                }
                tensor.write(Direct.ints(1, 2, 3, 4, 5, 6), stream);
                tensor.waitOn(user);
                same(0, closeGate(user.value()));
                same(0, work(target.address(), tensor.address(), 24, user.value()));
                tensor.usedOn(user);
                tensor.close();
                stream.close();
                openGate();
                settle();
                same(2L, there.get());
                check(awaitStreams(1, TimeUnit.MINUTES.toNanos(2)));
            }
            same(2L, ReleaseQueue.failures());
            user.synchronize();
        }
        finish();
    }

    /** A failed allocation holds no stream. */
    private static void closedAfterARefusal() {
        Allocator empty = request -> {
            throw new DevExchangeException(Status.OUT_OF_MEMORY, "there is no more");
        };
        try (DeviceStream stream = DeviceStream.create(CUDA);
                MemoryManager manager = MemoryManager.of(empty, null)) {
            refused(
                    Status.OUT_OF_MEMORY,
                    () -> Tensor.allocate(manager, CUDA, DType.INT32, SIX, stream),
                    "there is no more");
        }
        check(awaitStreams(1, TimeUnit.MINUTES.toNanos(2)));
    }

    /** Waits until at most a number of streams are left; returns whether that came true in time (nanoseconds). */
    private static boolean awaitStreams(long most, long patience) {
        long end = System.nanoTime() + patience;
        while (stat("live_streams") > most) {
            if (System.nanoTime() >= end) {
                return false;
            }
            LockSupport.parkNanos(1_000_000);
        }
        return true;
    }
}
