package dev.devexchange;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.lang.ref.Reference;
import java.lang.reflect.Method;
import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.List;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** The garbage collector finds what nobody closed. */
@ExtendWith(Check.class)
class CleanerTest {
    @Test
    void everythingThatIsDroppedIsReleasedOnce() throws InterruptedException {
        Release release = new Release();
        int rounds = 50;
        for (int i = 0; i < rounds; i++) {
            drop(release);
        }
        Check.collected(() -> Check.outstanding() <= 0);
        assertEquals(0, Check.outstanding(), () -> DevExchange.ledger().toString());
        assertEquals(2 * rounds, release.count());
    }

    /** More handles at once than a thread has places for. */
    @Test
    void manyThatAreOpenAtOnceAreFound() throws InterruptedException {
        Release release = new Release();
        int count = 300;
        Tensor[] all = new Tensor[count];
        for (int i = 0; i < count; i++) {
            all[i] = Tensor.create(Direct.bytes(1), DType.INT8, new long[] {1}, release);
        }
        for (int i = 0; i < count; i += 3) {
            all[i].close();
        }
        all[1].close();
        Check.flush();
        assertEquals(count / 3 + 1, release.count());
        Tensor kept = all[2];
        all = null;
        Check.collected(() -> Check.outstanding() <= 1);
        Check.flush();
        assertEquals(count - 1, release.count());
        kept.close();
        Check.flush();
        assertEquals(count, release.count());
    }

    /** A slice keeps it, too, even if the buffer that it was made from is dropped. */
    @Test
    void aBufferKeepsWhatItWasTakenFrom() throws InterruptedException {
        Release release = new Release();
        ByteBuffer[] buffers = {ofTensor(release), ofTensor(release).slice(8, 8).order(ByteOrder.nativeOrder()),
            ofColumn(release), ofColumn(release).duplicate().order(ByteOrder.nativeOrder())};
        Check.collect();
        Check.flush();
        assertEquals(0, release.count());
        assertEquals(2, buffers[0].getLong(8));
        assertEquals(2, buffers[1].getLong(0));
        assertEquals(4, buffers[2].getInt(4));
        assertEquals(4, buffers[3].getInt(4));
        buffers = null;
        Check.collected(() -> release.count() >= 4);
        assertEquals(4, release.count());
    }

    /** A memory segment keeps it, too, where there are memory segments. */
    @Test
    @Tag("jar")
    void aSegmentOfABufferKeepsWhatThatWasTakenFrom() throws Exception {
        Release release = new Release();
        Method ofBuffer = Class.forName("java.lang.foreign.MemorySegment").getMethod("ofBuffer", Buffer.class);
        Object[] segments = {ofBuffer.invoke(null, ofTensor(release)), ofBuffer.invoke(null, ofColumn(release))};
        Check.collect();
        Check.flush();
        assertEquals(0, release.count());
        Reference.reachabilityFence(segments);
        segments = null;
        Check.collected(() -> release.count() >= 2);
        assertEquals(2, release.count());
    }

    private static ByteBuffer ofTensor(Release release) {
        return Tensor.create(Direct.longs(1, 2), DType.INT64, new long[] {2}, release).byteBuffer();
    }

    private static ByteBuffer ofColumn(Release release) {
        return ArrayBuilder.of("c", Format.INT32, 2)
                .buffer(null)
                .buffer(Direct.ints(3, 4))
                .onRelease(release)
                .build(Device.CPU)
                .root()
                .valuesBuffer();
    }

    /** The number of a thread only chooses the places, whatever it is. */
    @Test
    void aThreadMayHaveAnyNumber() throws InterruptedException {
        Release release = new Release();
        Thread odd = new Thread(() -> Tensor.create(Direct.bytes(1), DType.INT8, new long[] {1}, release).close()) {
            @Override
            public long getId() {
                return -1;
            }
        };
        odd.start();
        odd.join();
        release.assertOnce();
    }

    /** One of each, used and forgotten. */
    private static void drop(Runnable release) {
        Tensor tensor = Tensor.create(Direct.ints(1, 2), DType.INT32, new long[] {2}, release);
        Tensor.importDlpack(tensor.exportShare());
        tensor.share();
        Schema schema = Schema.batch(Field.of("x", Format.INT8));
        CStruct fields = CStruct.arrowSchema();
        schema.exportArrow(fields.address());
        List<Node> nodes = List.of(Node.of(1, (ByteBuffer) null), Node.of(1, null, Direct.bytes(1)));
        Batch batch = Batch.create(schema, Device.CPU, nodes, release);
        CStruct array = CStruct.arrowArray();
        batch.exportShare(array.address());
        CStruct deviceArray = CStruct.arrowDeviceArray();
        batch.exportShareDevice(deviceArray.address());
        Batch.importArrowDevice(deviceArray.address(), schema);
        batch.column(0).toTensor(Copy.NEVER);
        BatchStream.of(schema, DeviceType.CPU, () -> null, null);
        CStruct stream = CStruct.arrowStream();
        BatchStream.of(schema, DeviceType.CPU, () -> null, null).exportArrow(stream.address());
        CStruct deviceStream = CStruct.arrowDeviceStream();
        BatchStream.of(schema, DeviceType.CPU, () -> null, null).exportArrowDevice(deviceStream.address());
        BatchStream.importArrowDevice(deviceStream.address());
    }
}
