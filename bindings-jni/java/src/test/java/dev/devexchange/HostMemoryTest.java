package dev.devexchange;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.ByteBuffer;
import org.junit.jupiter.api.Test;

/** Memory that is split into parts reads like memory in one piece. */
class HostMemoryTest {
    @Test
    void partsReadLikeOnePiece() {
        ByteBuffer memory = Direct.room(84);
        for (int i = 0; i < 84; i++) {
            memory.put(i, (byte) (i * 37));
        }
        HostMemory parts = HostMemory.of(Direct.address(memory), 84, 4);
        for (int i = 0; i < 84; i++) {
            assertEquals(memory.get(i), parts.i8(i));
            assertEquals((memory.get(i / 8) >> i % 8 & 1) == 1, parts.bit(i));
        }
        for (int i = 0; i + 2 <= 84; i += 2) {
            assertEquals(memory.getShort(i), parts.i16(i));
        }
        for (int i = 0; i + 4 <= 84; i += 4) {
            assertEquals(memory.getInt(i), parts.i32(i));
            assertEquals(memory.getFloat(i), parts.f32(i));
        }
        for (int i = 0; i + 8 <= 84; i += 8) {
            assertEquals(memory.getLong(i), parts.i64(i));
            assertEquals(memory.getDouble(i), parts.f64(i));
        }
        byte[] expected = new byte[50];
        memory.get(9, expected);
        assertArrayEquals(expected, parts.bytes(9, 50));
        assertArrayEquals(new byte[0], parts.bytes(84, 0));
        assertThrows(IndexOutOfBoundsException.class, () -> parts.bytes(80, 5));
        assertThrows(IndexOutOfBoundsException.class, () -> parts.i8(84));
        assertThrows(IndexOutOfBoundsException.class, () -> parts.i64(80));
    }
}
