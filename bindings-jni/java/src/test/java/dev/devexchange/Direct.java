package dev.devexchange;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;

/** Direct buffers in native order with given content. */
final class Direct {
    private Direct() {}

    static ByteBuffer room(int bytes) {
        return ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder());
    }

    static ByteBuffer bytes(int... values) {
        ByteBuffer buffer = room(values.length);
        for (int i = 0; i < values.length; i++) {
            buffer.put(i, (byte) values[i]);
        }
        return buffer;
    }

    static ByteBuffer shorts(int... values) {
        ByteBuffer buffer = room(values.length * Short.BYTES);
        for (int i = 0; i < values.length; i++) {
            buffer.putShort(i * Short.BYTES, (short) values[i]);
        }
        return buffer;
    }

    static ByteBuffer ints(int... values) {
        ByteBuffer buffer = room(values.length * Integer.BYTES);
        buffer.asIntBuffer().put(values);
        return buffer;
    }

    static ByteBuffer longs(long... values) {
        ByteBuffer buffer = room(values.length * Long.BYTES);
        buffer.asLongBuffer().put(values);
        return buffer;
    }

    static ByteBuffer floats(float... values) {
        ByteBuffer buffer = room(values.length * Float.BYTES);
        buffer.asFloatBuffer().put(values);
        return buffer;
    }

    static ByteBuffer doubles(double... values) {
        ByteBuffer buffer = room(values.length * Double.BYTES);
        buffer.asDoubleBuffer().put(values);
        return buffer;
    }

    /** A bitmap, row 0 first: {@code "1101"}. */
    static ByteBuffer bits(String bits) {
        ByteBuffer buffer = room((bits.length() + 7) / 8);
        for (int i = 0; i < bits.length(); i++) {
            int set = bits.charAt(i) == '1' ? 1 << i % 8 : 0;
            buffer.put(i / 8, (byte) (buffer.get(i / 8) | set));
        }
        return buffer;
    }

    static ByteBuffer text(String text) {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        return room(bytes.length).put(bytes).flip();
    }

    /** The byte order that this machine does not have. */
    static ByteOrder otherOrder() {
        return ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN ? ByteOrder.BIG_ENDIAN : ByteOrder.LITTLE_ENDIAN;
    }

    static long address(ByteBuffer buffer) {
        return Native.bufferAddress(buffer) + buffer.position();
    }
}
