package dev.devexchange;

import java.nio.ByteBuffer;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;

/**
 * Makes and hands out things while each allocation of the library fails, one at a time, and without texts from Java.
 */
final class AllocationFaults implements AutoCloseable {
    /** Owners that were handed over and are not released. */
    private final AtomicInteger live = new AtomicInteger();

    /** The number of owners so far. */
    private int owners;

    private final ByteBuffer memory = Direct.room(48);
    private final Tensor matrix = Tensor.allocate(Device.CPU, DType.FLOAT64, new long[] {2, 3}, null);
    private final Batch table = matrix.toBatch(List.of(), Copy.IF_NEEDED);
    private final Schema schema = table.schema();
    private final MemoryManager host = MemoryManager.hostOnly();

    /** Does something while an allocation fails; returns how many failed. */
    interface Act {
        long with(long nth) throws InterruptedException;
    }

    static long eachFault(Act act) throws InterruptedException {
        long all = 0;
        long failed = 1;
        for (long nth = 1; failed > 0; nth++) {
            failed = act.with(nth);
            all += failed;
        }
        return all;
    }

    /** The number of allocations that failed. */
    static long all() throws InterruptedException {
        long all = 0;
        try (AllocationFaults faults = new AllocationFaults()) {
            for (Supplier<AutoCloseable> scene : faults.scenes()) {
                // Makes now whatever is made only once.
                faults.make(scene, 0);
                all += eachFault(nth -> faults.make(scene, nth));
            }
        }
        return all;
    }

    private List<Supplier<AutoCloseable>> scenes() {
        MemoryRequest eight = MemoryRequest.of(Device.CPU, 8);
        return List.of(
                matrix::copy,
                matrix::share,
                table::share,
                table::schema,
                () -> matrix.toBatch(List.of(), Copy.IF_NEEDED),
                () -> table.toMatrix(Copy.ALWAYS, null),
                () -> Tensor.allocate(Device.CPU, DType.FLOAT64, new long[] {2, 3}, null),
                () -> Tensor.create(memory, DType.FLOAT64, new long[] {2, 3}, living()),
                () -> exported(matrix.exportShare()),
                this::imported,
                () -> BatchStream.of(schema, DeviceType.CPU, table::share, living()),
                MemoryManager::hostOnly,
                () -> MemoryManager.limited(host, 1000),
                () -> MemoryManager.of(request -> null, living()),
                () -> host.allocate(eight),
                () -> Tensor.allocate(host, Device.CPU, DType.FLOAT64, new long[] {3}, null),
                host::deferCleanup);
    }

    private static AutoCloseable exported(long tensor) {
        return () -> Dlpack.release(tensor);
    }

    private Tensor imported() {
        long tensor = matrix.exportShare();
        try {
            return Tensor.importDlpack(tensor);
        } catch (DevExchangeException e) {
            Dlpack.release(tensor);
            throw e;
        }
    }

    /** Makes the release callback of a new owner, and counts the owner. */
    private Runnable living() {
        owners++;
        live.incrementAndGet();
        return live::decrementAndGet;
    }

    private long make(Supplier<AutoCloseable> scene, long nth) throws InterruptedException {
        long before = DevExchange.outstanding();
        int ownersBefore = owners;
        AutoCloseable made = null;
        if (nth > 0) {
            Corpus.arm(nth, false);
        }
        try {
            made = scene.get();
        } catch (DevExchangeException e) {
            require(e.status() == Status.OUT_OF_MEMORY, e.toString());
        }
        long failed = Corpus.disarm();
        require(failed > 0 || made != null, "there was memory");
        try {
            if (made != null) {
                made.close();
            }
        } catch (Exception e) {
            throw new AssertionError(e);
        }
        require(ReleaseQueue.flush(Corpus.PATIENCE), "the release queue does not move");
        require(DevExchange.outstanding() == before, "allocation " + nth + ": " + DevExchange.ledger());
        // Whatever was not taken stays with its owner and is not released.
        int kept = made == null ? owners - ownersBefore : 0;
        require(live.get() == kept, "allocation " + nth + ": " + live + " owners are left, not " + kept);
        live.set(0);
        return failed;
    }

    private static void require(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    @Override
    public void close() {
        host.close();
        schema.close();
        table.close();
        matrix.close();
    }
}
