package dev.devexchange;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.function.Supplier;

/**
 * Read access to host memory of any size. Offsets are in bytes; a value lies at a multiple of its size. The caller must
 * keep the memory alive.
 */
final class HostMemory {
    /** The size of a part, as a power of 2. A buffer has at most 2 GiB, so large memory is split into parts. */
    private static final int SHIFT = 30;

    /** The most bytes that any memory can have: the range of a process's addresses. */
    static final long MOST_BYTES = 1L << 47;

    private final ByteBuffer[] parts;
    private final int shift;

    private HostMemory(ByteBuffer[] parts, int shift) {
        this.parts = parts;
        this.shift = shift;
    }

    /** Access to {@link #MOST_BYTES} bytes at most. */
    static HostMemory of(long address, long bytes) {
        return of(address, bytes, SHIFT);
    }

    /** Access in parts of {@code 1 << shift} bytes. */
    static HostMemory of(long address, long bytes, int shift) {
        ByteBuffer[] parts = new ByteBuffer[Math.toIntExact((bytes + (1L << shift) - 1) >>> shift)];
        for (int i = 0; i < parts.length; i++) {
            long start = (long) i << shift;
            parts[i] = view(address + start, Math.min(1L << shift, bytes - start));
        }
        return new HostMemory(parts, shift);
    }

    /** A buffer in native order over memory of at least one byte. */
    static ByteBuffer view(long address, long bytes) {
        return Calls.view(address, bytes).order(ByteOrder.nativeOrder());
    }

    /** The address of the first remaining byte of a caller's buffer. */
    static long address(ByteBuffer buffer, String name) {
        return address(buffer, () -> name);
    }

    /** Like {@link #address(ByteBuffer, String)}, for a name that has to be made. */
    static long address(ByteBuffer buffer, Supplier<String> name) {
        if (!buffer.isDirect()) {
            throw new DevExchangeException(
                    Status.INVALID_ARGUMENT, name.get() + " is a heap ByteBuffer: it must be a direct one");
        }
        if (buffer.order() != ByteOrder.nativeOrder()) {
            throw new DevExchangeException(
                    Status.INVALID_ARGUMENT,
                    name.get() + " has byte order " + buffer.order() + ": it must be the native one, "
                            + ByteOrder.nativeOrder() + "; order(ByteOrder.nativeOrder()) sets it, also on what slice, "
                            + "duplicate and asReadOnlyBuffer return, which begin with BIG_ENDIAN");
        }
        return Calls.bufferAddress(buffer) + buffer.position();
    }

    private ByteBuffer part(long at) {
        return parts[(int) (at >>> shift)];
    }

    private int index(long at) {
        return (int) (at & (1L << shift) - 1);
    }

    byte i8(long at) {
        return part(at).get(index(at));
    }

    short i16(long at) {
        return part(at).getShort(index(at));
    }

    int i32(long at) {
        return part(at).getInt(index(at));
    }

    long i64(long at) {
        return part(at).getLong(index(at));
    }

    float f32(long at) {
        return part(at).getFloat(index(at));
    }

    double f64(long at) {
        return part(at).getDouble(index(at));
    }

    /** Bit {@code index} of a bitmap, in which the lowest bit of each byte comes first. */
    boolean bit(long index) {
        return (i8(index >>> 3) >> (index & 7) & 1) == 1;
    }

    /** A copy of {@code count} bytes, which may lie in several parts. */
    byte[] bytes(long at, int count) {
        byte[] bytes = new byte[count];
        for (int done = 0; done < count; ) {
            int index = index(at + done);
            ByteBuffer part = part(at + done);
            int here = Math.min(count - done, part.limit() - index);
            if (here <= 0) {
                throw new IndexOutOfBoundsException("byte " + (at + done));
            }
            part.get(index, bytes, done, here);
            done += here;
        }
        return bytes;
    }
}
