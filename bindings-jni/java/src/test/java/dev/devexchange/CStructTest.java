package dev.devexchange;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

@ExtendWith(Check.class)
class CStructTest {
    @Test
    void aNewStructIsZeroAndHoldsNothing() {
        for (CStruct struct : List.of(CStruct.arrowArray(), CStruct.arrowSchema(), CStruct.arrowDeviceArray())) {
            assertTrue(struct.isReleased());
            assertEquals(0, struct.address() % 16);
            for (int i = 0; i < struct.memory().capacity(); i++) {
                assertEquals(0, struct.memory().get(i));
            }
            struct.release();
            assertFalse(struct.isClosed());
            struct.close();
            assertTrue(struct.isClosed());
        }
    }

    @Test
    void closingReleasesWhatIsStillThere() throws InterruptedException {
        Release release = new Release();
        try (Schema schema = Schema.of(Field.of("x", Format.INT8));
                CStruct array = CStruct.arrowArray();
                CStruct fields = CStruct.arrowSchema()) {
            schema.exportArrow(fields.address());
            Batch.create(schema, Device.CPU, List.of(Node.of(1, null, Direct.bytes(1))), release)
                    .exportMove(array.address());
            assertFalse(array.isReleased());
            release.assertNotYet();
        }
        release.assertOnce();
    }

    @Test
    void aReleasedStructCanBeFilledAgain() throws InterruptedException {
        try (Schema schema = Schema.of(Field.of("x", Format.INT8));
                CStruct array = CStruct.arrowDeviceArray()) {
            for (int i = 0; i < 3; i++) {
                Release release = new Release();
                ByteBuffer memory = Direct.bytes(i);
                Batch.create(schema, Device.CPU, List.of(Node.of(1, null, memory)), release)
                        .exportMoveDevice(array.address());
                array.release();
                assertTrue(array.isReleased());
                release.assertOnce();
            }
        }
    }
}
