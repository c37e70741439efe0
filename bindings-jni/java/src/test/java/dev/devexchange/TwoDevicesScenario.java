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
import static dev.devexchange.DeviceScenario.holds;
import static dev.devexchange.DeviceScenario.openGate;
import static dev.devexchange.DeviceScenario.same;
import static dev.devexchange.DeviceScenario.settle;
import static dev.devexchange.DeviceScenario.work;

import java.nio.ByteBuffer;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;

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
            settle();
        }
        check(context() == before);
        finish();
        System.out.println("main is done");
    }

    /** To the other device and back, on streams of either. */
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

    /** A consumer that works on the other device comes after the producer, and the release after the consumer. */
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

    /** Of which device a default stream is, no number says; a stream of Java's does. */
    private static void importOnADefaultStream(DeviceStream first) throws InterruptedException {
        AtomicInteger released = new AtomicInteger();
        try (Tensor memory = filled(first);
                DeviceStream other = DeviceStream.of(SECOND, DeviceStream.LEGACY_DEFAULT)) {
            first.synchronize();
            long exported = foreign(memory, released).exportMove();
            try (Tensor imported = Tensor.importDlpack(exported, other)) {
                same(0, closeGate(DeviceStream.LEGACY_DEFAULT)); // of the first device, which is current
                imported.waitOn(first);
                Thread reader = new Thread(() -> holds(imported, first), "reader");
                reader.start();
                reader.join(10_000);
                boolean done = !reader.isAlive();
                openGate();
                reader.join();
                check(done);
                first.synchronize();
            }
            settle();
            same(1, released.get());
        }
    }
}
